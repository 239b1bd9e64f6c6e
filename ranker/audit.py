"""Which rankings have their checked texts logged for people to judge: a lot of each id, with a known probability.

Whether a ranking is drawn follows from a keyed hash of its id alone: independent of what it offers and of
whether it explores, unknown to the caller, and the same in every process.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from features.events import COUNTED_TRAFFIC, Audit, AuditedText
from ranker.types import Ranking

MAX_TEXTS = 64
"""Of one ranking; of more, so many are drawn, and the probability that is logged says so."""

_PURPOSE = b"audit of passed texts"


@dataclass(frozen=True)
class AuditLot:
    """Draws rankings, and texts of those that have many.

    Args:
        probability: of a ranking, in (0, 1].
        key: of the hash; another one than that of exploration.
    """

    probability: float
    key: bytes = field(repr=False)

    def draws(self, ranking: Ranking) -> bool:
        """Whether the texts of this ranking are logged; never of what nobody sees."""
        return ranking.traffic in COUNTED_TRAFFIC and self._share(ranking.request_id) < self.probability

    def among(self, texts: Sequence[AuditedText], request_id: str) -> Audit | None:
        """The texts of a ranking that was drawn, with the probability that each of them had; None without any."""
        if not texts:
            return None
        if len(texts) <= MAX_TEXTS:
            return Audit(probability=self.probability, items=list(texts))
        rows = sorted(range(len(texts)), key=lambda row: self._share(f"{row}:{request_id}"))
        chosen = [texts[row] for row in sorted(rows[:MAX_TEXTS])]
        return Audit(probability=self.probability * MAX_TEXTS / len(texts), items=chosen)

    def _share(self, name: str) -> float:
        """Uniform in [0, 1)."""
        digest = hmac.digest(self.key, name.encode("utf-8", "surrogatepass"), "sha256")
        return (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53


def audit_lot(secret: bytes, probability: float) -> AuditLot | None:
    """The lot of an installation; None where nothing is audited."""
    return AuditLot(probability, hmac.digest(secret, _PURPOSE, "sha256")) if probability > 0.0 else None
