"""When a request would end if it were let in: what runs, what is queued ahead, and itself."""

from __future__ import annotations

import math

from ranker.inference.cost import CostModel
from ranker.inference.lane import Model, PriorityQueue
from ranker.inference.room import Room
from ranker.inference.scheduler_config import SchedulerConfig
from ranker.inference.waiting import Waiting

Loads = dict[Model, tuple[float, float]]


class Forecast:
    """Predicts ends from the queue's sums, without walking it.

    Ahead are those of the same class with an earlier key, and of the other class what the share lets pass meanwhile,
    but no more than waits; a shadow request has all the rest ahead. Requests of one model are taken to be packed by
    their mean size.
    """

    def __init__(self, config: SchedulerConfig, room: Room) -> None:
        self._most_tokens, self._most_requests = config.max_batch_tokens, config.max_batch_requests
        self._room = room
        share, queues = config.normal_share, room.queues
        # Per priority, the other queues, and how many of their tokens may pass for each of its own.
        self._others: dict[str, tuple[tuple[PriorityQueue, float], ...]] = {
            "premium": ((queues["normal"], share / (1.0 - share) if share < 1.0 else math.inf),),
            "normal": ((queues["premium"], (1.0 - share) / share if share > 0.0 else math.inf),),
            "shadow": ((queues["premium"], math.inf), (queues["normal"], math.inf)),
        }

    def latest_end_ms(self, newcomer: Waiting, start_ms: float) -> float:
        """No earlier than `end_ms`, at a fraction of its cost: all that waits is taken to be ahead, in poor batches.

        Batches of requests of mean size m hold min(N, ⌊B/m⌋) of them, at least N or B/(2·m): so n tokens in r requests
        are at most r/N + 2·n/B + 1 batches. Infinite where no line of cost is known, or several models wait.
        """
        room, model = self._room, newcomer.lane.model
        line = model.cost.line
        if line is None or model.queued < len(room.by_id):
            return math.inf
        tokens = room.tokens + newcomer.tokens
        batches = (model.queued + 1) / self._most_requests + 2.0 * tokens / self._most_tokens + 2.0
        return start_ms + batches * line[0] + tokens * line[1]

    def end_ms(self, newcomer: Waiting, start_ms: float) -> float:
        """When it would end, the device being free at `start_ms`."""
        model, key_ms = newcomer.lane.model, newcomer.key_ms
        if not self._room.by_id:
            return start_ms + model.cost.predict(newcomer.tokens)
        ahead: float = newcomer.tokens  # of its class, itself included
        tokens, requests = ahead, 1  # of these and of the other classes', those of its own model
        rest: Loads = {}
        for lane in newcomer.lane.queue.lanes.values():
            before, count = lane.line.before(key_ms)
            ahead += before
            if lane.model is model:
                tokens, requests = tokens + before, requests + count
            elif count:
                _add(rest, lane.model, before, count)
        for queue, ratio in self._others[newcomer.lane.priority]:
            if queue.tokens:
                part = min(1.0, ratio * ahead / queue.tokens)
                for lane in queue.lanes.values():
                    line = lane.line
                    if lane.model is model:
                        tokens, requests = tokens + part * line.tokens, requests + math.ceil(part * line.requests)
                    else:
                        _add(rest, lane.model, part * line.tokens, math.ceil(part * line.requests))
        total = self._work_ms(model.cost, tokens, requests)
        return start_ms + (total + self._total_ms(rest) if rest else total)

    def drain_ms(self) -> float:
        """How long all that waits would take."""
        loads: Loads = {}
        for lane in self._room.lanes():
            _add(loads, lane.model, lane.line.tokens, lane.line.requests)
        return self._total_ms(loads)

    def _total_ms(self, loads: Loads) -> float:
        total = 0.0
        for model, (tokens, requests) in loads.items():
            total += self._work_ms(model.cost, tokens, requests) if requests else 0.0
        return total

    def _work_ms(self, cost: CostModel, tokens: float, requests: float) -> float:
        # Batches as full as the mean size allows.
        per_batch = min(self._most_requests, max(1, self._most_tokens * requests // tokens))
        if requests <= per_batch:
            return cost.predict(tokens)
        if (line := cost.line) is not None:
            return math.ceil(requests / per_batch) * line[0] + line[1] * tokens
        before = math.ceil(requests / per_batch) - 1
        full = tokens * per_batch / requests
        return before * cost.predict(full) + cost.predict(tokens - before * full)


def _add(loads: Loads, model: Model, tokens: float, requests: float) -> None:
    held = loads.get(model)
    loads[model] = (tokens, requests) if held is None else (tokens + held[0], requests + held[1])
