"""The queue: every admitted request, once, with its counts; who has expired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ranker.inference.lane import Lane, PriorityQueue
from ranker.inference.models import Models
from ranker.inference.request import PRIORITIES
from ranker.inference.waiting import Waiting


class Room:
    """Owner of all that waits."""

    def __init__(self) -> None:
        self.queues = {priority: PriorityQueue() for priority in PRIORITIES}
        self.by_id: dict[str, Waiting] = {}
        self.tokens = 0

    def __len__(self) -> int:
        """Requests waiting."""
        return len(self.by_id)

    def find(self, request_id: str) -> Waiting | None:
        """The one of this id."""
        return self.by_id.get(request_id)

    def only(self) -> Waiting | None:
        """The one that waits, if it is alone."""
        return next(iter(self.by_id.values())) if len(self.by_id) == 1 else None

    def lane(self, key: str, priority: str, models: Models) -> Lane:
        """The lane of a model and priority, which may be new and empty."""
        queue = self.queues[priority]
        return queue.lanes.get(key) or Lane(models.of(key), priority, queue)

    def lanes(self) -> Iterator[Lane]:
        """All lanes that hold requests."""
        return (lane for queue in self.queues.values() for lane in queue.lanes.values())

    def add(self, waiting: Waiting) -> None:
        """Lets one in."""
        lane, number, deadline_ms, tokens = waiting.lane, waiting.number, waiting.deadline_ms, waiting.tokens
        queue = lane.queue
        if not lane.line.requests:
            queue.lanes[lane.model.key] = lane
        entry = (waiting.key_ms, number, waiting)
        lane.line.add(entry, tokens)
        lane.expiry.push(entry if waiting.key_ms == deadline_ms else (deadline_ms, number, waiting))
        # Of equal deadlines the newest goes first: it has waited least.
        queue.latest.push((-deadline_ms, -number, waiting))
        self.by_id[waiting.request.request_id] = waiting
        queue.tokens += tokens
        queue.requests += 1
        self.tokens += tokens
        lane.model.queued += 1

    def leave(self, waiting: Waiting) -> None:
        """Takes one out, wherever it stands."""
        waiting.lane.line.remove(waiting)
        self._left(waiting.lane, [waiting])

    def take(self, taken: Sequence[Waiting]) -> None:
        """Takes out those at the fronts of their lanes, in order."""
        lanes: dict[Lane, list[Waiting]] = {}
        for waiting in taken:
            if waiting.lane in lanes:
                lanes[waiting.lane].append(waiting)
            else:
                lanes[waiting.lane] = [waiting]
        for lane, some in lanes.items():
            lane.line.drop_first(len(some))
            self._left(lane, some)

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
        by_id, tokens = self.by_id, 0
        for waiting in gone:
            waiting.gone = True
            tokens += waiting.tokens
            del by_id[waiting.request.request_id]
        lane.expiry.forget(len(gone))
        lane.queue.latest.forget(len(gone))
        queue = lane.queue
        queue.tokens -= tokens
        queue.requests -= len(gone)
        self.tokens -= tokens
        lane.model.queued -= len(gone)
        if not lane.line.requests:
            del queue.lanes[lane.model.key]
            lane.expiry.clear()  # what is gone refers to its lane: this ends the circle
        if not queue.requests:
            queue.latest.clear()
