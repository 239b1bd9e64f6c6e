"""The queue: every admitted request, once, with its counts; who has expired."""

from __future__ import annotations

from collections.abc import Iterator

from ranker.inference.lane import Lane, Model, PriorityQueue
from ranker.inference.request import PRIORITIES
from ranker.inference.waiting import Waiting


class Room:
    """Owner of all that waits."""

    def __init__(self) -> None:
        self.queues = {priority: PriorityQueue() for priority in PRIORITIES}
        self._by_id: dict[str, Waiting] = {}
        self.tokens = 0

    def __len__(self) -> int:
        """Requests waiting."""
        return len(self._by_id)

    def __contains__(self, request_id: object) -> bool:
        """Whether a request of this id waits."""
        return request_id in self._by_id

    def find(self, request_id: str) -> Waiting | None:
        """The one of this id."""
        return self._by_id.get(request_id)

    def only(self) -> Waiting | None:
        """The one that waits, if it is alone."""
        return next(iter(self._by_id.values())) if len(self._by_id) == 1 else None

    def lane(self, model: Model, priority: str) -> Lane:
        """The lane of a model and priority, which may be new and empty."""
        return self.queues[priority].lanes.get(model.key) or Lane(model, priority)

    def lanes(self) -> Iterator[Lane]:
        """All lanes that hold requests."""
        return (lane for queue in self.queues.values() for lane in queue.lanes.values())

    def add(self, waiting: Waiting) -> None:
        """Lets one in."""
        lane, number = waiting.lane, waiting.number
        queue = self.queues[lane.priority]
        queue.lanes[lane.model.key] = lane
        lane.line.add(waiting)
        lane.expiry.push(waiting.deadline_ms, number, waiting)
        # Of equal deadlines the newest goes first: it has waited least.
        queue.latest.push(-waiting.deadline_ms, -number, waiting)
        self._by_id[waiting.request.request_id] = waiting
        self._count(lane, waiting.tokens, 1)

    def leave(self, waiting: Waiting) -> None:
        """Takes one out, wherever it stands."""
        waiting.lane.line.remove(waiting)
        self._left(waiting.lane, [waiting])

    def take(self, lane: Lane, taken: list[Waiting]) -> None:
        """Takes out the first of a lane; `taken` are those, in order."""
        lane.line.drop_first(len(taken))
        self._left(lane, taken)

    def expired(self, now_ms: float, margin_ms: float) -> list[Waiting]:
        """Takes out all whose deadline not even the smallest batch of their model could keep."""
        found = []
        for lane in list(self.lanes()):
            while lane.line.requests and lane.latest_start_ms(margin_ms) < now_ms:
                first = lane.expiry.peek()
                assert first is not None
                self.leave(first)
                found.append(first)
        return found

    def _left(self, lane: Lane, gone: list[Waiting]) -> None:
        for waiting in gone:
            waiting.gone = True
            del self._by_id[waiting.request.request_id]
        queue = self.queues[lane.priority]
        lane.expiry.forget(len(gone))
        queue.latest.forget(len(gone))
        self._count(lane, -sum(waiting.tokens for waiting in gone), -len(gone))
        if not lane.line.requests:
            del queue.lanes[lane.model.key]

    def _count(self, lane: Lane, tokens: int, requests: int) -> None:
        queue = self.queues[lane.priority]
        queue.tokens += tokens
        queue.requests += requests
        self.tokens += tokens
        lane.model.queued += requests
