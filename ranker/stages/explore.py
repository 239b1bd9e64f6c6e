"""explore: the order, greedy or drawn, over candidates that safety and freshness have judged.

Whether a request explores, and what it draws, follows from HMAC(secret, its id) alone: independent of the
context, unknown to the caller, and the same in every process. Probes and replays draw like live traffic and
keep their traffic type.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from ranker.greedy import greedy_order
from ranker.judges import Judge, apply_before_draw
from ranker.propensity import GREEDY, Exploration, draw_order
from ranker.types import Ranking


@dataclass(frozen=True)
class Lot:
    """What an id has drawn.

    Args:
        share: uniform in [0, 1); below ε the request explores.
        seed: of the order's noise; independent of the share.
    """

    share: float
    seed: int


def cast_lot(secret: bytes, request_id: str) -> Lot:
    """The lot of an id."""
    digest = hmac.digest(secret, request_id.encode("utf-8", "surrogatepass"), "sha256")
    bits = int.from_bytes(digest[:8], "big") >> 11
    return Lot(bits * 2.0**-53, int.from_bytes(digest[8:], "big"))


@dataclass(frozen=True)
class Explore:
    """Fills `order` and `greedy`, and calls live traffic that was drawn `explore`.

    Args:
        judges: asked in order before the draw; whatever reaches the draw has passed them all.
        secret: key of the HMAC.
    """

    judges: tuple[Judge, ...]
    secret: bytes = field(repr=False)
    exploration: Exploration = GREEDY
    name: str = "explore"

    async def run(self, ranking: Ranking) -> Ranking:
        """The ranking with its order; when a judge raises, so does this, and nothing is offered."""
        for judge in self.judges:
            ranking = apply_before_draw(judge, ranking)
        if ranking.pool is not None:
            ranking = ranking.but(pool=ranking.pool.reached(ranking.candidates))
        greedy = tuple(greedy_order(ranking))
        if self.exploration.epsilon <= 0.0:
            return ranking.but(order=greedy, greedy=greedy)
        lot = cast_lot(self.secret, ranking.request_id)
        if lot.share >= self.exploration.epsilon:
            return ranking.but(order=greedy, greedy=greedy)
        assert ranking.scores is not None, "the light stage runs first"
        order = tuple(draw_order(self.exploration.utilities(ranking.scores), lot.seed))
        traffic = "explore" if ranking.traffic == "live" else ranking.traffic
        return ranking.but(order=order, greedy=greedy, traffic=traffic)
