"""What waits, by priority and model."""

from __future__ import annotations

from ranker.inference.cost import CostModel
from ranker.inference.lazy_heap import LazyHeap
from ranker.inference.line import Line
from ranker.inference.waiting import Waiting
from ranker.inference.window import Gaps


class Model:
    """What is known of one model key: what it costs, and how often it is asked for."""

    __slots__ = ("cost", "gaps", "key", "queued")

    def __init__(self, key: str) -> None:
        self.key = key
        self.cost = CostModel()
        self.gaps = Gaps()
        self.queued = 0


class Lane:
    """Requests of one priority for one model, in key order and by deadline."""

    __slots__ = ("expiry", "line", "model", "priority", "queue")

    def __init__(self, model: Model, priority: str, queue: PriorityQueue) -> None:
        self.model = model
        self.priority = priority
        self.queue = queue
        self.line = Line()
        self.expiry = LazyHeap()

    def latest_start_ms(self, margin_ms: float) -> float:
        """The instant after which its first deadline cannot be kept even by the smallest batch."""
        first = self.expiry.peek()
        return float("inf") if first is None else first.deadline_ms - (margin_ms + self.model.cost.predict(1))


class PriorityQueue:
    """The lanes of one priority that hold requests, by model key."""

    __slots__ = ("lanes", "latest", "requests", "tokens")

    def __init__(self) -> None:
        self.lanes: dict[str, Lane] = {}
        self.latest = LazyHeap()
        self.requests = 0
        self.tokens = 0

    def head(self) -> Waiting | None:
        """The first in key order over all models."""
        lane = self.first_lane()
        return None if lane is None else lane.line.first()[2]

    def first_lane(self, but: Lane | None = None) -> Lane | None:
        """The lane whose head is first, `but` left out."""
        lanes = self.lanes
        if but is None and len(lanes) == 1:
            return next(iter(lanes.values()))
        rest = [lane for lane in lanes.values() if lane is not but]
        return min(rest, key=lambda lane: lane.line.first()[:2]) if rest else None
