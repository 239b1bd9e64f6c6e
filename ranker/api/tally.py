"""What happened, counted in plain numbers: a request pays two dictionary updates, `/metrics` does the rest.

One event loop writes and reads, so there are no locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable

from ranker.answers import EventAnswer, RankAnswer

LATENCY_EDGES_MS = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 80.0, 100.0, 120.0, 150.0, 200.0, 500.0, 1e3, 5e3)
"""Upper edges, inclusive; 120 ms is the promise that is watched, so a bucket ends exactly there."""

STAGE_EDGES_MS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0, 120.0)
ITEM_EDGES = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)


class Histogram:
    """Counts by upper edge (inclusive), their sum; the last count is of what is above all edges."""

    __slots__ = ("counts", "edges", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value


class Tally:
    """All counts of the HTTP layer since it was made."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.disconnects: Counter[str] = Counter()
        self.latency_ms: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(LATENCY_EDGES_MS))
        self.stage_ms: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(STAGE_EDGES_MS))
        self.items = Histogram(ITEM_EDGES)
        self.degraded: Counter[str] = Counter()
        self.rankings: Counter[str] = Counter()
        self.events: Counter[tuple[str, str]] = Counter()

    def answered(self, route: str, status: int, elapsed_ms: float) -> None:
        """An answer has been sent; `route` is a template, never a path with ids in it."""
        self.requests[route, status] += 1
        self.latency_ms[route].add(elapsed_ms)

    def disconnected(self, route: str) -> None:
        """A client left before its body had arrived."""
        self.disconnects[route] += 1

    def ranked(self, answer: RankAnswer) -> None:
        """A ranking was made."""
        self.rankings[answer.traffic] += 1
        self.items.add(len(answer.items))
        for stage, elapsed_ms in answer.timings_ms.items():
            self.stage_ms[stage].add(elapsed_ms)
        for reason in answer.degraded:
            self.degraded[reason] += 1

    def ingested(self, answers: Iterable[EventAnswer]) -> None:
        """Events were taken or refused."""
        for answer in answers:
            self.events[answer.status, answer.reason or ""] += 1
