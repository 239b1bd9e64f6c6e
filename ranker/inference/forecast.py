"""When a request would end if it were let in: what runs, what is queued ahead, and itself."""

from __future__ import annotations

import math

from ranker.inference.cost import CostModel
from ranker.inference.lane import Lane, PriorityQueue
from ranker.inference.room import Room
from ranker.inference.scheduler_config import SchedulerConfig
from ranker.inference.waiting import Waiting

Loads = dict[str, tuple[CostModel, float, float]]


class Forecast:
    """Predicts ends from the queue's sums, without walking it.

    Ahead are those of the same class with an earlier key, and of the other class what the share lets pass meanwhile,
    but no more than waits; a shadow request has all the rest ahead. Requests of one model are taken to be packed by
    their mean size.
    """

    def __init__(self, config: SchedulerConfig, room: Room) -> None:
        self._config = config
        self._room = room

    def end_ms(self, newcomer: Waiting, start_ms: float) -> float:
        """When it would end, the device being free at `start_ms`."""
        loads: Loads = {}
        own_tokens = self._ahead(loads, newcomer)
        model = newcomer.lane.model
        _add(loads, newcomer.lane, newcomer.tokens, 1)
        for queue, ratio in self._others(newcomer.lane.priority):
            if queue.tokens:
                part = min(1.0, ratio * (own_tokens + newcomer.tokens) / queue.tokens)
                for lane in queue.lanes.values():
                    _add(loads, lane, part * lane.line.tokens, math.ceil(part * lane.line.requests))
        assert model.key in loads
        return start_ms + sum(self.work_ms(*load) for load in loads.values())

    def drain_ms(self) -> float:
        """How long all that waits would take."""
        loads: Loads = {}
        for lane in self._room.lanes():
            _add(loads, lane, lane.line.tokens, lane.line.requests)
        return sum(self.work_ms(*load) for load in loads.values())

    def work_ms(self, cost: CostModel, tokens: float, requests: float) -> float:
        """How long these take in batches as full as their mean size allows."""
        limit = self._config.max_batch_tokens
        per_batch = min(self._config.max_batch_requests, max(1, limit * requests // tokens))
        if requests <= per_batch:
            return cost.predict(tokens)
        before = math.ceil(requests / per_batch) - 1
        full = tokens * per_batch / requests
        return before * cost.predict(full) + cost.predict(tokens - before * full)

    def _ahead(self, loads: Loads, newcomer: Waiting) -> int:
        total = 0
        for lane in self._room.queues[newcomer.lane.priority].lanes.values():
            tokens, requests = lane.line.before(newcomer.key_ms)
            if requests:
                _add(loads, lane, tokens, requests)
                total += tokens
        return total

    def _others(self, priority: str) -> list[tuple[PriorityQueue, float]]:
        queues, share = self._room.queues, self._config.normal_share
        if priority == "premium":
            return [(queues["normal"], share / (1.0 - share) if share < 1.0 else math.inf)]
        if priority == "normal":
            return [(queues["premium"], (1.0 - share) / share if share > 0.0 else math.inf)]
        return [(queues["premium"], math.inf), (queues["normal"], math.inf)]


def _add(loads: Loads, lane: Lane, tokens: float, requests: float) -> None:
    key = lane.model.key
    if key in loads:
        cost, more_tokens, more_requests = loads[key]
        loads[key] = (cost, tokens + more_tokens, requests + more_requests)
    elif requests:
        loads[key] = (lane.model.cost, tokens, requests)
