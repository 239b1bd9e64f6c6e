"""From a ranking of the log to the list it showed and what it was drawn from; or the reason why it cannot serve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from features.events import RankedItem, RankingEvent
from features.scored import Scored
from training.labels import Pair
from training.off_policy.slates import Floats


@dataclass(frozen=True)
class Offer:
    """A list that was shown.

    Args:
        pool: what could have been shown, with its logged score: the logged pool less what was deleted after the draw.
        rows: of the pool, those of the scored set's pool numbering; `kept[i]` is the pool row of candidate i.
        shown: rows of `pool`, from the first slot on.
        position: of the first slot; above 1 only where a single slot is logged.
        propensities: [slots], each given the list above it.
    """

    event: RankingEvent
    pool: tuple[Scored, ...]
    kept: tuple[int, ...]
    shown: tuple[int, ...]
    position: int
    propensities: Floats

    @property
    def pairs(self) -> list[Pair]:
        """(action, target) of the pool."""
        return [(action, target) for action, target, _ in self.pool]

    @property
    def scores(self) -> Floats:
        """The log's scores [pool]."""
        return np.array([score for _, _, score in self.pool], np.float64)


def offer_of(event: RankingEvent) -> Offer | str:
    """The offer of a ranking, or why it is rejected."""
    items = sorted(event.items, key=lambda item: item.position)
    if not items:
        return "empty_list"
    for item in items:
        if wrong := wrong_propensity(item):
            return wrong
    if event.pool is None:
        return "pool_missing"
    deleted = set(event.deleted)
    kept = tuple(row for row in range(len(event.pool)) if row not in deleted)
    pool = tuple(event.pool[row] for row in kept)
    shown = _places(items, pool)
    if shown is None:
        return "shown_not_in_pool"
    positions = [item.position for item in items]
    first = positions[0]
    if positions != list(range(first, first + len(items))) or (first > 1 and len(items) > 1):
        return "positions_missing"
    if not all(math.isfinite(score) for _, _, score in pool):
        return "score_not_finite"
    propensities = np.array([item.propensity for item in items], np.float64)
    return Offer(event, pool, kept, shown, first, propensities)


def wrong_propensity(item: RankedItem) -> str | None:
    """What is wrong with an item's propensity: every one must be finite and in (0, 1]."""
    propensity = item.propensity
    if propensity is None:
        return "propensity_missing"
    if not math.isfinite(propensity):
        return "propensity_not_finite"
    if propensity > 1.0:
        return "propensity_above_one"
    if propensity <= 0.0:
        return "propensity_zero" if propensity == 0.0 else "propensity_negative"
    return None


def _places(items: Sequence[RankedItem], pool: Sequence[Scored]) -> tuple[int, ...] | None:
    """Rows of the pool that were shown; None where one is not in it, or the pool or the list names a pair twice."""
    place = {(action, target): row for row, (action, target, _) in enumerate(pool)}
    shown = tuple(place.get((item.action, item.target), -1) for item in items)
    if -1 in shown or len(set(shown)) < len(shown) or len(place) < len(pool):
        return None
    return shown
