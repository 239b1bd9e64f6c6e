"""What the engine counts, in plain numbers."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

from ranker.inference.batch_run import Outcome, Work
from ranker.inference.request import PRIORITIES, Batch

COUNTS = ("offered", "dispatched", "answered", "late", "failed", "returned", "left", "batches", "failed_batches")
"""Of requests, and of batches; they only rise."""
KEPT = 2048
"""The most recent requests and batches over which percentiles are taken."""


class EngineStats:
    """Counts since the start, and the recent past."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self.rejections: Counter[str] = Counter()
        self._waits: dict[str, deque[float]] = {priority: deque(maxlen=KEPT) for priority in PRIORITIES}
        self._sizes: deque[int] = deque(maxlen=KEPT)
        self._fills: deque[float] = deque(maxlen=KEPT)
        self._took: deque[float] = deque(maxlen=KEPT)
        self._held: deque[float] = deque(maxlen=KEPT)

    def rejected(self, reason: str) -> None:
        """One request was turned away."""
        self.rejections[reason] += 1

    def dispatched(self, batch: Batch, now_ms: float, idle_since_ms: float, most_tokens: int) -> None:
        """A batch went to the device, which had been idle since then."""
        self.counts["batches"] += 1
        self.counts["dispatched"] += len(batch.requests)
        self._sizes.append(len(batch.requests))
        self._fills.append(batch.tokens / most_tokens)
        oldest = now_ms
        for request in batch.requests:
            arrival = min(request.arrival_ms, now_ms)
            oldest = min(oldest, arrival)
            self._waits[request.priority].append(now_ms - arrival)
        self._held.append(now_ms - max(oldest, idle_since_ms))

    def ended(self, work: Work, outcome: Outcome, now_ms: float) -> None:
        """A batch came back."""
        self._took.append(now_ms - work.started_ms)
        self.counts["failed_batches"] += outcome.runs > 1 or bool(outcome.failed)
        self.counts["returned"] += len(outcome.returned)
        self.counts["left"] += len(outcome.left)

    def snapshot(self) -> dict[str, Any]:
        """A plain dictionary; times in ms.

        `late_share` is of the requests that were dispatched; `window_ms` is how long an idle device held a batch.
        """
        return {
            **self.counts,
            **shares(self.counts),
            "rejections": dict(self.rejections),
            "wait_ms": {priority: percentiles(waits) for priority, waits in self._waits.items()},
            "window_ms": percentiles(self._held),
            "batch_ms": percentiles(self._took),
            "batch_requests": percentiles(self._sizes),
            "batch_fill": percentiles(self._fills),
        }


def shares(counts: Mapping[str, Any]) -> dict[str, float]:
    """What was late of the dispatched, and answered of the offered; 0 where there is none."""
    sent, offered = counts.get("dispatched", 0), counts.get("offered", 0)
    return {
        "late_share": counts.get("late", 0) / sent if sent else 0.0,
        "goodput_share": counts.get("answered", 0) / offered if offered else 0.0,
    }


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """Mean, p50, p99 and the largest; empty when there are none."""
    ordered = sorted(values)
    if not ordered:
        return {}
    last = len(ordered) - 1
    return {
        "mean": math.fsum(ordered) / len(ordered),
        "p50": ordered[round(0.5 * last)],
        "p99": ordered[round(0.99 * last)],
        "max": ordered[last],
    }
