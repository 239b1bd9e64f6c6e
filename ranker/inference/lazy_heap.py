"""A heap from which what left the queue is dropped late: at the top, or when more than half of it is gone."""

from __future__ import annotations

from collections.abc import Generator
from heapq import heapify, heappop, heappush

from ranker.inference.waiting import Waiting

SMALL = 64

Ranked = tuple[float, int, Waiting]
"""Rank, what decides between equals, and whose they are."""


class LazyHeap:
    """Smallest rank first; O(log n) a call, amortised over the compactions, and never more than twice what is live."""

    __slots__ = ("_gone", "_heap")

    def __init__(self) -> None:
        self._heap: list[Ranked] = []
        self._gone = 0

    def __len__(self) -> int:
        """Entries held, those that are gone included."""
        return len(self._heap)

    def push(self, ranked: Ranked) -> None:
        """Adds one that waits."""
        heappush(self._heap, ranked)

    def peek(self) -> Waiting | None:
        """The smallest that still waits."""
        heap = self._heap
        while heap and heap[0][2].gone:
            heappop(heap)
            self._gone -= 1
        return heap[0][2] if heap else None

    def in_order(self) -> Generator[Waiting, None, None]:
        """Those that wait, smallest first, one O(log n) step each; nobody may leave before this is closed."""
        seen: list[Ranked] = []
        try:
            while (first := self.peek()) is not None:
                seen.append(heappop(self._heap))
                yield first
        finally:
            for entry in seen:
                heappush(self._heap, entry)

    def clear(self) -> None:
        """Told that all are gone."""
        self._heap, self._gone = [], 0

    def forget(self, count: int) -> None:
        """Told that this many of its entries are gone."""
        self._gone += count
        if 2 * self._gone > len(self._heap) > SMALL:
            self._heap = [entry for entry in self._heap if not entry[2].gone]
            heapify(self._heap)
            self._gone = 0
