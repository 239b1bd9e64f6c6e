"""The pipeline: stages in the order of the arrow, and the runner that owns time, fallbacks and logs.

A stage takes the state and returns a new one. What a stage means when it fails (`recover`) or when the
deadline has passed before it (`late`) is in the stage's own file; a stage with neither always runs, and
when it fails nothing is offered: an action that was not checked is never answered.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ranker.clock import Clock
from ranker.degraded import Degraded
from ranker.types import DEFAULT_BUDGETS_MS, Candidates, Drop, Ranking, RankRequest

ARROW = " → "
COMPLAINT_GAP_MS = 10_000.0
"""A stage that fails on every request is logged this often; each failure is counted."""

_logger = logging.getLogger(__name__)


class Stage(Protocol):
    """One step of the arrow. Pure, but for the context's read and the last look of safety and freshness."""

    @property
    def name(self) -> str:
        """The step's word in the arrow."""
        ...

    async def run(self, ranking: Ranking) -> Ranking:
        """The next state."""
        ...


@runtime_checkable
class Recovers(Protocol):
    """A stage whose failure does not have to empty the list."""

    def recover(self, ranking: Ranking, error: Exception) -> Ranking:
        """What stands in for the stage that raised."""
        ...


@runtime_checkable
class Skippable(Protocol):
    """A stage that can be left out when the deadline has passed before it."""

    def late(self, ranking: Ranking) -> Ranking:
        """What stands in for the stage."""
        ...


class Observer(Protocol):
    """Takes the runner's numbers, for metrics."""

    def timed(self, stage: str, ms: float) -> None:
        """How long a stage took; `total` is the whole."""
        ...

    def dropped(self, stage: str, reason: str, count: int) -> None:
        """How many candidates a stage removed for a reason."""
        ...

    def failed(self, stage: str, error: Exception) -> None:
        """A stage raised."""
        ...


class Unobserved:
    """An observer that keeps nothing."""

    def timed(self, stage: str, ms: float) -> None:
        """Nothing."""

    def dropped(self, stage: str, reason: str, count: int) -> None:
        """Nothing."""

    def failed(self, stage: str, error: Exception) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Pipeline:
    """Stages in order; `str` is the arrow of the README."""

    stages: tuple[Stage, ...]
    clock: Clock
    observer: Observer = field(default_factory=Unobserved)
    _complained_ms: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return ARROW.join(stage.name for stage in self.stages)

    async def run(self, ranking: Ranking) -> Ranking:
        """The answer: never raises for a stage, never waits on I/O past the deadline."""
        timings: dict[str, float] = {}
        started_ms = moment_ms = self.clock.monotonic_ms()
        seen = len(ranking.drops)
        for stage in self.stages:
            ranking = await self._step(stage, ranking, moment_ms)
            before_ms, moment_ms = moment_ms, self.clock.monotonic_ms()
            timings[stage.name] = moment_ms - before_ms
        timings["total"] = moment_ms - started_ms
        self._report(timings, ranking.drops[seen:])
        return ranking.but(timings_ms=timings)

    async def _step(self, stage: Stage, ranking: Ranking, now_ms: float) -> Ranking:
        try:
            if now_ms >= ranking.deadline_ms and isinstance(stage, Skippable):
                return stage.late(ranking)
            return await stage.run(ranking)
        except Exception as error:
            self._complain(stage.name, ranking.request_id, error)
            return self._recovered(stage, ranking, error)

    def _recovered(self, stage: Stage, ranking: Ranking, error: Exception) -> Ranking:
        if isinstance(stage, Recovers):
            try:
                return stage.recover(ranking, error)
            except Exception as second:
                self._complain(stage.name, ranking.request_id, second)
        return emptied(ranking, stage.name)

    def _complain(self, stage: str, request_id: str, error: Exception) -> None:
        self.observer.failed(stage, error)
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._complained_ms.get(stage, -COMPLAINT_GAP_MS) >= COMPLAINT_GAP_MS:
            self._complained_ms[stage] = now_ms
            _logger.error("stage %s failed on request %r", stage, request_id, exc_info=error)

    def _report(self, timings: Mapping[str, float], drops: tuple[Drop, ...]) -> None:
        for name, ms in timings.items():
            self.observer.timed(name, ms)
        if drops:
            for (stage, reason), count in Counter((drop.stage, drop.reason) for drop in drops).items():
                self.observer.dropped(stage, reason, count)


def emptied(ranking: Ranking, stage: str) -> Ranking:
    """Nothing left to offer because a stage failed; every candidate is dropped with the reason `error`."""
    left = ranking.order or range(len(ranking.candidates))
    rows = ranking.candidates
    lost = tuple(Drop(stage, rows.actions[row], rows.targets[row], "error") for row in left)
    return ranking.but(
        candidates=Candidates(),
        features=None,
        prior=None,
        scores=None,
        order=(),
        greedy=(),
        items=(),
        drops=ranking.drops + lost,
    ).because(Degraded.EMPTY)


def deadline_ms(request: RankRequest, arrived_ms: float, budgets_ms: Mapping[str, float] = DEFAULT_BUDGETS_MS) -> float:
    """The monotonic instant at which the caller stops waiting: its own budget, or its priority's."""
    return arrived_ms + (request.budget_ms if request.budget_ms is not None else budgets_ms[request.priority])
