"""What makes two events of the log the same event."""

from __future__ import annotations

from hashlib import blake2b

from features.events import Event, RankingEvent


def identity(event: Event) -> bytes:
    """Equal for events that count once; 8 bytes, so 10 million events collide by chance with p < 1e-5.

    A ranking's id is scoped to its user, as in the API; every other id stands for itself.
    """
    return ranking_key(event.user, event.id) if isinstance(event, RankingEvent) else _digest("e", event.id)


def ranking_key(user: str, ranking: str) -> bytes:
    """The identity of a ranking, as feedback names it."""
    return _digest("r", user, ranking)


def _digest(*parts: str) -> bytes:
    # Lengths keep ("ab", "c") and ("a", "bc") apart.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
