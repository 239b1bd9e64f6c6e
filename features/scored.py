"""What a ranking had scored, from its line of the log."""

from __future__ import annotations

from features.events import RankingEvent

Scored = tuple[str, str | None, float]


def scored_set(event: RankingEvent) -> list[Scored] | None:
    """(action, target, score) of all that was scored, in that order; None where the pool was not logged."""
    if event.pool is None:
        return None
    scored = list(event.pool)
    for position, action, target, score in sorted(event.withheld, key=lambda entry: entry[0]):
        scored.insert(position, (action, target, score))
    return scored


def reached_draw(event: RankingEvent) -> list[bool]:
    """Of the scored set, whether each candidate is in the pool."""
    reached = [True] * len(event.pool or ())
    for position in sorted(entry[0] for entry in event.withheld):
        reached.insert(position, False)
    return reached
