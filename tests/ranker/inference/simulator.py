"""A discrete-event simulator: a day of one device's traffic in seconds, with the scheduler as it is."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ranker.inference.scheduler import Batch, Rejection, Request, Scheduler

Cost = Callable[[Batch], float]


@dataclass
class Outcome:
    """What became of the requests.

    Args:
        started, ended: ms by request id, of those dispatched.
        batches: (start ms, end ms, batch) in order.
        rejected: by request id.
    """

    offered: dict[str, Request] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    rejected: dict[str, Rejection] = field(default_factory=dict)
    batches: list[tuple[float, float, Batch]] = field(default_factory=list)

    def in_time(self, since_ms: float = -math.inf, until_ms: float = math.inf) -> int:
        """Requests that ended by their deadline, of those that ended in [since, until)."""
        return sum(
            end <= self.offered[name].deadline_ms for name, end in self.ended.items() if since_ms <= end < until_ms
        )

    def late(self) -> int:
        """Requests that ran and ended after their deadline."""
        return len(self.ended) - self.in_time()

    def waits(self, priority: str) -> list[float]:
        """From arrival to start, in ms."""
        names = (name for name in self.started if self.offered[name].priority == priority)
        return [self.started[name] - self.offered[name].arrival_ms for name in names]

    def reasons(self) -> Counter[str]:
        """Rejections by reason."""
        return Counter(rejection.reason for rejection in self.rejected.values())


def affine(fixed_ms: float, per_token_ms: float = 0.0, jitter: float = 0.0, seed: int = 0) -> Cost:
    """A device on which a batch takes a + b·n, times a factor drawn from 1 ± jitter."""
    draw = random.Random(seed)
    return lambda batch: (fixed_ms + per_token_ms * batch.tokens) * draw.uniform(1.0 - jitter, 1.0 + jitter)


def poisson(
    rate_per_s: float,
    start_ms: float,
    end_ms: float,
    *,
    seed: int,
    budget_ms: float = 50.0,
    tokens: Callable[[random.Random], int] = lambda draw: 1,
    priority: str = "normal",
    model_key: str = "m@1",
    name: str = "r",
) -> Iterator[Request]:
    """Open-loop arrivals, each with its budget."""
    draw, now, count = random.Random(seed), start_ms, 0
    while (now := now + draw.expovariate(rate_per_s) * 1000.0) < end_ms:
        count += 1
        yield Request(f"{name}{count}", model_key, tokens(draw), now, now + budget_ms, priority)


def play(scheduler: Scheduler, requests: Iterable[Request], cost: Cost) -> Outcome:
    """Offers each request when it arrives, polls when something happens or `wake_at` says so, runs each batch."""
    outcome, arrivals = Outcome(), iter(sorted(requests, key=lambda request: request.arrival_ms))
    upcoming, running, free_ms, now = next(arrivals, None), None, math.inf, 0.0
    while True:
        wake = scheduler.wake_at(now)
        arrival = math.inf if upcoming is None else upcoming.arrival_ms
        now = max(now, min(arrival, free_ms, math.inf if wake is None else wake))
        if now == math.inf:
            return outcome
        if running is not None and free_ms <= now:
            scheduler.done(running, outcome.batches[-1][0], free_ms)
            running, free_ms = None, math.inf
        while upcoming is not None and upcoming.arrival_ms <= now:
            outcome.offered[upcoming.request_id] = upcoming
            _note(outcome, scheduler.offer(upcoming, now))
            upcoming = next(arrivals, None)
        batch = scheduler.poll(now)
        _note(outcome, scheduler.drain_rejections())
        if batch is not None:
            running, free_ms = batch, now + cost(batch)
            outcome.batches.append((now, free_ms, batch))
            for request in batch.requests:
                outcome.started[request.request_id], outcome.ended[request.request_id] = now, free_ms


def _note(outcome: Outcome, rejections: list[Rejection]) -> None:
    for rejection in rejections:
        assert rejection.request_id not in outcome.started, "rejected after it ran"
        assert rejection.request_id not in outcome.rejected, "rejected twice"
        outcome.rejected[rejection.request_id] = rejection
