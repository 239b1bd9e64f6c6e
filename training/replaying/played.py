"""One ranking of the log, and what a version answered to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from features.events import RankedItem, RankingEvent
from training.labels import Pair

MAX_LOGGED = 1000


@dataclass(frozen=True)
class Played:
    """What was answered.

    Args:
        event: the logged ranking.
        order: all that was ranked, best first, as far as the answer says.
        scores: of what was scored, by pair.
        latency_ms: of the answer; NaN where it failed.
        late_ms: how much later than planned it was asked.
        degraded: why the answer is less than it could be.
        slices: names of the parts of traffic that it belongs to.
        vectors: recomputed for the logged pool [pool, columns], where the log has them too.
        error: what was wrong, where there is no answer.
    """

    event: RankingEvent
    order: tuple[Pair, ...] = ()
    scores: Mapping[Pair, float] = field(default_factory=dict)
    latency_ms: float = math.nan
    late_ms: float = 0.0
    degraded: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    slices: tuple[str, ...] = ()
    vectors: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    error: str = ""

    @property
    def shown(self) -> tuple[Pair, ...]:
        """The logged list."""
        items = sorted(self.event.items, key=lambda item: item.position)
        return tuple((item.action, item.target) for item in items)

    @property
    def logged_scores(self) -> dict[Pair, float]:
        """Of the logged pool; of the items where the pool was not logged."""
        if self.event.pool is not None:
            return {(action, target): score for action, target, score in self.event.pool}
        return {(item.action, item.target): item.score for item in self.event.items if item.score is not None}

    def as_event(self) -> RankingEvent:
        """The answer as the log keeps it: traffic `replay`, no state moves by it."""
        size = len(self.event.items)
        items = [
            RankedItem(action=pair[0], target=pair[1], position=place, score=self.scores.get(pair), propensity=1.0)
            for place, pair in enumerate(self.order[:size], 1)
        ]
        pool = [(action, target, score) for (action, target), score in self.scores.items()][:MAX_LOGGED]
        return RankingEvent(
            id=self.event.id,
            time=self.event.time,
            user=self.event.user,
            session=self.event.session,
            context=self.event.context,
            items=items,
            pool=pool or None,
            traffic="replay",
            versions=dict(self.versions),
            degraded=list(self.degraded),
        )


Answers = Iterator[Played]
