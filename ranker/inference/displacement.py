"""Who must go when the queue is over its bound: never the newest by accident.

By priority (shadow, normal, premium), then who would be late even if it were next, then the latest deadline, the newest
of equals. Nobody is displaced for a newcomer that would not fit even then.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice

from ranker.inference.lane import Lane, PriorityQueue
from ranker.inference.request import PRIORITIES
from ranker.inference.room import Room
from ranker.inference.scheduler_config import SchedulerConfig
from ranker.inference.waiting import Waiting

# More of its own class than this are not worth one newcomer; it bounds what one offer costs.
MOST_EQUALS = 64

Worst = Generator[Waiting, None, None]


class Displacement:
    """Chooses who makes room."""

    def __init__(self, config: SchedulerConfig, room: Room) -> None:
        self._config = config
        self._room = room

    def is_over(self, newcomer: Waiting) -> bool:
        """Whether it does not fit."""
        config, room = self._config, self._room
        return len(room.by_id) >= config.max_queue_requests or room.tokens + newcomer.tokens > config.max_queue_tokens

    def victims(self, newcomer: Waiting, start_ms: float) -> list[Waiting] | None:
        """Who leaves for it, the device being free at `start_ms`; None if it must go itself."""
        queues = self._room.queues
        rank = PRIORITIES.index(newcomer.lane.priority)
        lower = [queues[priority] for priority in reversed(PRIORITIES[rank + 1 :])]
        tokens = self._room.tokens + newcomer.tokens - self._config.max_queue_tokens
        requests = len(self._room) + 1 - self._config.max_queue_requests
        with closing(self._all_worst_first(lower, start_ms)) as below:
            if sum(q.tokens for q in lower) >= tokens and sum(q.requests for q in lower) >= requests:
                return _enough(below, tokens, requests)
            tokens -= sum(queue.tokens for queue in lower)
            requests -= sum(queue.requests for queue in lower)
            with closing(self._worst_first(queues[newcomer.lane.priority], start_ms, newcomer)) as equals:
                chosen = _enough(islice(equals, MOST_EQUALS), tokens, requests)
            return None if chosen is None else [*below, *chosen]

    def _all_worst_first(self, queues: list[PriorityQueue], start_ms: float) -> Worst:
        for queue in queues:
            yield from self._worst_first(queue, start_ms)

    def _worst_first(self, queue: PriorityQueue, start_ms: float, newcomer: Waiting | None = None) -> Worst:
        doomed = sorted(
            (waiting for lane in queue.lanes.values() for waiting in self._doomed(lane, start_ms)),
            key=lambda waiting: (waiting.deadline_ms, waiting.number),
        )
        yield from doomed
        with closing(queue.latest.in_order()) as latest:
            for waiting in latest:
                if newcomer is not None and waiting.deadline_ms <= newcomer.deadline_ms:
                    return
                if waiting not in doomed:
                    yield waiting

    def _doomed(self, lane: Lane, start_ms: float) -> list[Waiting]:
        least = self._config.margin_ms + lane.model.cost.predict(1)
        found: list[Waiting] = []
        with closing(lane.expiry.in_order()) as earliest:
            for waiting in islice(earliest, MOST_EQUALS):
                if waiting.deadline_ms - least >= start_ms:
                    break
                found.append(waiting)
        return found


def _enough(candidates: Iterator[Waiting], tokens: int, requests: int) -> list[Waiting] | None:
    chosen: list[Waiting] = []
    for waiting in candidates:
        if tokens <= 0 and requests <= 0:
            break
        chosen.append(waiting)
        tokens -= waiting.tokens
        requests -= 1
    return chosen if tokens <= 0 and requests <= 0 else None
