"""Which requests run next, under deadlines: sans-I/O, with ids and numbers only, and the time as an argument.

A request is let in if it can end by its deadline: what runs, what is queued ahead, and itself. `poll` gives one batch
of one model at a time: earliest key first within a class, premium before normal except for what normal is owed, shadow
only when nothing else can run. Nothing is dispatched whose predicted end (the 99th percentile) is past its deadline.

A normal request that was let in is dispatched within (residual of the running batch) + k·T̂(B), or rejected, never late;
k = ⌈(S + L)/(q·(B − L)) + (j + 1)/(q·N)⌉ for S tokens and j requests of its class at or ahead of it (itself included),
largest request L, share q, batches of B tokens or N requests. It is derived in ranker/inference/share.py.

Under overload the queue is as long as deadlines allow, so who needs a batch of his own (a rarely used model) would end
last and is refused first: he costs a batch of others who were promised an answer. Premium says who is worth that.

    offer, cancel, victim, expiry   O(log n) comparisons for n queued, amortised over compactions, times models queued
    poll                            O(log n) per request that leaves the queue
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ranker.inference.displacement import Displacement
from ranker.inference.draft import Draft, Moment, Plan, alone
from ranker.inference.forecast import Forecast
from ranker.inference.lane import Model, PriorityQueue
from ranker.inference.models import Models
from ranker.inference.request import PRIORITIES, Batch, Rejection, Request, fault
from ranker.inference.room import Room
from ranker.inference.scheduler_config import SchedulerConfig
from ranker.inference.share import Share
from ranker.inference.waiting import Waiting
from ranker.inference.window import hold_until

__all__ = ["Batch", "Rejection", "Request", "Scheduler", "SchedulerConfig"]


class Scheduler:
    """The queue and the clockwork of one device; one driver calls it, from one thread."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self._ageing_ms = {priority: config.ageing_ms.get(priority, math.inf) for priority in PRIORITIES}
        self._most_tokens = min(config.max_batch_tokens, config.max_queue_tokens)
        self._room = Room()
        self._models = Models()
        self._share = Share(config)
        self._forecast = Forecast(config, self._room)
        self._displacement = Displacement(config, self._room)
        self._rejections: list[Rejection] = []
        self._running: Batch | None = None
        self._running_ids: frozenset[str] = frozenset()
        self._free_ms = -math.inf
        self._held_until: float | None = None
        self._now = -math.inf
        self._offers = 0
        self._batches = 0

    @property
    def queued(self) -> int:
        """Requests waiting; those of the running batch are not."""
        return len(self._room)

    @property
    def queued_tokens(self) -> int:
        """The sum of their budgets."""
        return self._room.tokens

    @property
    def running(self) -> Batch | None:
        """The batch that `done` or `abandon` has not been told of."""
        return self._running

    @property
    def share(self) -> Share:
        """What normal is owed; to be read only."""
        return self._share

    def queued_by_priority(self) -> dict[str, int]:
        """Requests waiting, by priority."""
        return {priority: queue.requests for priority, queue in self._room.queues.items()}

    def predicted_ms(self, model_key: str, tokens: int) -> float | None:
        """The 99th percentile of what a batch of this size takes; None while that is not known."""
        model = self._models.find(model_key)
        return model.cost.predict(tokens) if model is not None and model.cost.knows(tokens) else None

    def seed_cost(self, model_key: str, *, fixed_ms: float, per_token_ms: float) -> None:
        """Says what a model's batches cost, until batches of such sizes have run."""
        self._models.of(model_key).cost.seed(fixed_ms, per_token_ms, self.config.max_batch_tokens)
        self._held_until = None

    def offer(self, request: Request, now_ms: float) -> list[Rejection]:
        """Lets it in, or turns it away, or turns others away for it."""
        now = now_ms if now_ms == self._now else self._tick(now_ms)
        if refusal := self._refusal(request):
            return [refusal]
        waiting = self._waiting(request, now)
        start = now if self._running is None else self._start(now)
        self._held_until = None
        margin, deadline = self.config.margin_ms, request.deadline_ms
        if deadline < math.inf and self._forecast.latest_end_ms(waiting, start) + margin > deadline:
            end = self._forecast.end_ms(waiting, start)
            if end + margin > deadline:
                return [self._too_late(waiting, end, now)]
        displaced: list[Rejection] = []
        if self._displacement.is_over(waiting):
            made = self._make_room(waiting, start, now)
            if made is None:
                return [Rejection(request.request_id, "queue_full", self._room_after_ms(now))]
            displaced = made
        self._room.add(waiting)
        waiting.lane.model.gaps.seen(now)
        return displaced

    def cancel(self, request_id: str) -> bool:
        """Takes one out of the queue; False if it does not wait (it may be running)."""
        waiting = self._room.find(request_id)
        if waiting is None:
            return False
        self._room.leave(waiting)
        self._held_until = None
        return True

    def poll(self, now_ms: float) -> Batch | None:
        """The batch to run now; None while one runs, while nothing waits, or while waiting for one more pays."""
        now = self._tick(now_ms)
        self._expire(now)
        if self._running is not None or not len(self._room):
            return None
        queues = self._room.queues
        self._drop_late_heads(now, queues["premium"], queues["normal"])
        if not queues["premium"].requests and not queues["normal"].requests:
            self._drop_late_heads(now, queues["shadow"])
        plan = self._plan(now)
        if plan is None:
            return None
        self._held_until = self._hold_until(plan)
        if now < self._held_until:
            return None
        return self._dispatch(plan, now)

    def wake_at(self, now_ms: float) -> float | None:
        """The next moment at which `poll` could answer differently or turn somebody away; None if there is none."""
        now = now_ms if self._now < now_ms < math.inf else self._now
        if not len(self._room):
            return None
        if self._running is None and self._held_until is None:
            return now
        # At its latest start a request still ends in time: it is late just after.
        expiry = min(lane.latest_start_ms(self.config.margin_ms) for lane in self._room.lanes())
        wake = math.nextafter(expiry, math.inf)
        if self._running is None and self._held_until is not None:
            wake = min(wake, self._held_until)
        return max(now, wake) if wake < math.inf else None

    def done(self, batch: Batch, started_ms: float, finished_ms: float, failed: bool = False) -> None:
        """The device is free; unless the batch failed, its time teaches. A batch that is not running is ignored."""
        if not self._release(batch):
            return
        if not failed:
            self._models.of(batch.model_key).cost.observe(batch.tokens, finished_ms - started_ms, self._now)

    def abandon(self, batch: Batch) -> None:
        """The device is free of a batch that never ended; nothing is learned."""
        self._release(batch)

    def drain_rejections(self) -> list[Rejection]:
        """Those turned away since the last call after they had been let in."""
        rejections, self._rejections = self._rejections, []
        return rejections

    def _tick(self, now_ms: float) -> float:
        # Time never goes back here, and what is no time is no news.
        if self._now < now_ms < math.inf:
            self._now = now_ms
        return self._now if self._now > -math.inf else 0.0

    def _start(self, now: float) -> float:
        return max(now, self._free_ms) if self._running is not None else now

    def _refusal(self, request: Request) -> Rejection | None:
        if problem := fault(request):
            return Rejection(request.request_id, "invalid", 0.0, problem)
        if request.request_id in self._room.by_id or request.request_id in self._running_ids:
            return Rejection(request.request_id, "duplicate", 0.0)
        if request.token_budget > self._most_tokens:
            problem = f"token_budget is {request.token_budget}; a batch holds {self._most_tokens}"
            return Rejection(request.request_id, "too_large", 0.0, problem)
        return None

    def _waiting(self, request: Request, now: float) -> Waiting:
        self._offers += 1
        lane = self._room.lane(request.model_key, request.priority, self._models)
        arrival, deadline = request.arrival_ms, request.deadline_ms
        if arrival > now:
            arrival = now
        aged = arrival + self._ageing_ms[request.priority]
        key, tokens = aged if aged < deadline else deadline, int(request.token_budget)
        return Waiting(request, lane, tokens, arrival, deadline, key, self._offers)

    def _too_late(self, waiting: Waiting, end: float, now: float) -> Rejection:
        cost, budget = waiting.lane.model.cost, waiting.deadline_ms - waiting.arrival_ms
        if cost.predict(waiting.tokens) + self.config.margin_ms > budget:
            cost.distrust(now)
        retry = max(0.0, end - now + self.config.margin_ms - budget)
        return Rejection(waiting.request.request_id, "deadline", retry)

    def _make_room(self, newcomer: Waiting, start: float, now: float) -> list[Rejection] | None:
        self._expire(now)
        if not self._displacement.is_over(newcomer):
            return []
        victims = self._displacement.victims(newcomer, start)
        if victims is None:
            return None
        for victim in victims:
            self._room.leave(victim)
        retry = self._room_after_ms(now)
        return [Rejection(victim.request.request_id, "queue_full", retry) for victim in victims]

    def _room_after_ms(self, now: float) -> float:
        # The queue next has room when the running batch ends and another leaves.
        return max(self._start(now) - now, self.config.margin_ms)

    def _expire(self, now: float) -> None:
        if expired := self._room.expired(now, self.config.margin_ms):
            self._reject(expired, now)

    def _drop_late_heads(self, now: float, *queues: PriorityQueue) -> None:
        late = []
        for lane in [lane for queue in queues for lane in queue.lanes.values()]:
            while lane.line.requests:
                head = lane.line.first()[2]
                if now + self.config.margin_ms + lane.model.cost.predict(head.tokens) <= head.deadline_ms:
                    break
                self._room.leave(head)
                late.append(head)
        if late:
            self._reject(late, now)

    def _reject(self, late: Iterable[Waiting], now: float) -> None:
        backlog = self._start(now) - now + self._forecast.drain_ms() + self.config.margin_ms
        for waiting in late:
            retry = max(0.0, backlog - (waiting.deadline_ms - waiting.arrival_ms))
            self._rejections.append(Rejection(waiting.request.request_id, "deadline", retry))

    def _plan(self, now: float) -> Plan | None:
        if (only := self._room.only()) is not None:
            return alone(only, self.config)
        queues = self._room.queues
        premium, normal = queues["premium"].first_lane(), queues["normal"].first_lane()
        lead = premium or normal
        if lead is None:
            shadow = queues["shadow"].first_lane()
            return None if shadow is None else Draft(shadow.model, shadow, None, self._moment(now)).plan()
        plan = self._draft(lead.model, now, forced=False)
        left = plan.normal_left
        if premium is None or normal is None or left is None or not self._share.owes(plan.given, left.tokens):
            return plan
        return self._draft(normal.model, now, forced=True)

    def _draft(self, model: Model, now: float, forced: bool) -> Plan:
        premium, normal = self._room.queues["premium"], self._room.queues["normal"]
        own = normal.lanes.get(model.key)
        rival = normal.first_lane(but=own) if len(normal.lanes) > (own is not None) else None
        moment = self._moment(now, rival.line.first()[2] if rival is not None else None, forced)
        return Draft(model, premium.lanes.get(model.key), own, moment).plan()

    def _moment(self, now: float, rival: Waiting | None = None, forced: bool = False) -> Moment:
        return Moment(self.config, self._share, now + self.config.margin_ms, rival, forced)

    def _hold_until(self, plan: Plan) -> float:
        queues, model = self._room.queues, plan.model
        waiting = queues["premium"].requests + queues["normal"].requests or queues["shadow"].requests
        if plan.full or plan.passed or len(plan.members) < waiting:
            return -math.inf
        until = hold_until(len(plan.members), plan.tokens, model.cost, model.gaps)
        oldest = min(member.arrival_ms for member in plan.members)
        spare = self.config.margin_ms + model.cost.predict(plan.tokens) + model.gaps.mean_ms
        return min(until, oldest + self.config.max_wait_ms, plan.deadline_ms - spare)

    def _dispatch(self, plan: Plan, now: float) -> Batch:
        self._room.take(plan.consumed)
        queues = self._room.queues
        self._share.settle(plan.given, queues["normal"].requests > 0, queues["premium"].requests > 0)
        self._batches += 1
        requests = tuple([member.request for member in plan.members])
        batch = Batch(self._batches, plan.model.key, requests, plan.tokens)
        self._running, self._running_ids = batch, frozenset([request.request_id for request in requests])
        self._free_ms = now + plan.model.cost.predict(plan.tokens)
        self._held_until = None
        if plan.passed:
            self._reject(plan.passed, now)
        return batch

    def _release(self, batch: Batch) -> bool:
        if self._running is None or batch.batch_id != self._running.batch_id:
            return False
        self._running, self._running_ids, self._free_ms, self._held_until = None, frozenset(), -math.inf, None
        return True
