"""The scheduler does what the rules say on plain lists, whatever the order of calls."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ranker.inference.scheduler import Batch, Request, Scheduler, SchedulerConfig
from tests.ranker.inference.scheduler_reference import Reference

MODELS = st.sampled_from(["a@1", "b@1", "c@1"])
STEPS = st.integers(0, 40).map(lambda halves: halves / 2)


class Rules(RuleBasedStateMachine):
    """Random calls to both; answers, counts and wake-ups must agree."""

    @initialize(
        requests=st.sampled_from([2, 4, 8]), share=st.sampled_from([0.25, 0.5]), wait=st.sampled_from([0.0, 5.0])
    )
    def start(self, requests: int, share: float, wait: float) -> None:
        config = SchedulerConfig(
            max_batch_tokens=12,
            max_batch_requests=requests,
            max_queue_requests=9,
            max_queue_tokens=50,
            normal_share=share,
            ageing_ms={"premium": 10.0, "normal": 30.0},
            max_wait_ms=wait,
            margin_ms=0.5,
        )
        self.scheduler, self.reference = Scheduler(config), Reference(config)
        self.now, self.names = 0.0, 0
        self.batch: Batch | None = None

    @rule(model=MODELS, fixed=st.sampled_from([0.0, 1.0, 4.0, 10.0]), per_token=st.sampled_from([0.0, 0.25, 1.0]))
    def seed(self, model: str, fixed: float, per_token: float) -> None:
        self.scheduler.seed_cost(model, fixed_ms=fixed, per_token_ms=per_token)
        self.reference.seed(model, fixed, per_token)

    @rule(
        many=st.lists(
            st.tuples(
                MODELS,
                st.integers(0, 13),
                st.sampled_from([-20.0, -5.0, 0.0, 0.0, 0.0, 5.0]),
                st.sampled_from([-1.0, 3.0, 8.0, 15.0, 15.0, 25.0, 60.0, math.inf]),
                st.sampled_from(["premium", "normal", "normal", "shadow"]),
            ),
            min_size=1,
            max_size=6,
        ),
        step=st.sampled_from([0.0, 0.5, 1.0]),
    )
    def offer(self, many: list[tuple[str, int, float, float, str]], step: float) -> None:
        for model, tokens, shift, budget, priority in many:
            self.names += 1
            arrival = self.now + shift
            request = Request(f"r{self.names}", model, tokens, arrival, arrival + budget, priority)
            answer = self.scheduler.offer(request, self.now)
            assert all(rejection.retry_after_ms >= 0.0 for rejection in answer)
            assert [(each.request_id, each.reason) for each in answer] == self.reference.offer(request, self.now)
            self.now += step

    @rule(back=st.integers(0, 12))
    def offer_again(self, back: int) -> None:
        request = Request(f"r{max(1, self.names - back)}", "a@1", 3, self.now, self.now + 20.0)
        answer = self.scheduler.offer(request, self.now)
        assert [(each.request_id, each.reason) for each in answer] == self.reference.offer(request, self.now)

    @rule(back=st.integers(0, 12))
    def cancel(self, back: int) -> None:
        name = f"r{self.names - back}"
        assert self.scheduler.cancel(name) == self.reference.cancel(name)

    @rule(step=STEPS)
    def let_time_pass(self, step: float) -> None:
        self.now += step

    @rule()
    def poll(self) -> None:
        batch, expected = self.scheduler.poll(self.now), self.reference.poll(self.now)
        assert (None if batch is None else (batch.model_key, [r.request_id for r in batch.requests])) == expected
        dropped = [rejection.request_id for rejection in self.scheduler.drain_rejections()]
        assert sorted(dropped) == sorted(self.reference.dropped)
        self.reference.dropped.clear()
        self.batch = batch or self.batch
        if batch is not None:
            self.check(batch)

    def check(self, batch: Batch) -> None:
        config = self.scheduler.config
        assert 0 < batch.tokens == sum(request.token_budget for request in batch.requests) <= config.max_batch_tokens
        assert len(batch.requests) <= config.max_batch_requests
        end = self.now + config.margin_ms + self.reference.time(batch.model_key, batch.tokens)
        assert all(end <= request.deadline_ms for request in batch.requests)
        assert len({request.priority == "shadow" for request in batch.requests}) == 1

    @precondition(lambda self: self.scheduler.running is not None)
    @rule(took=st.sampled_from([-1.0, 0.0, 1.0, 5.0, 5.0, 5.5, 12.0, 300.0]), ending=st.sampled_from("dddfa"))
    def end(self, took: float, ending: str) -> None:
        assert self.batch is not None
        if ending == "a":
            self.scheduler.abandon(self.batch)
        else:
            self.scheduler.done(self.batch, self.now, self.now + took, failed=ending == "f")
        if ending == "d":
            cost = self.reference.cost(self.batch.model_key)
            cost.observe(self.batch.tokens, self.now + took - self.now, self.reference.now)
        self.reference.release()

    @rule()
    def sleep_until_woken(self) -> None:
        if self.scheduler.poll(self.now) is not None:
            # A batch that nobody wanted: give the reference the same.
            assert self.reference.poll(self.now) is not None
            self.scheduler.drain_rejections()
            self.reference.dropped.clear()
            self.batch = self.scheduler.running
            return
        self.reference.poll(self.now)
        self.scheduler.drain_rejections()
        self.reference.dropped.clear()
        wake = self.scheduler.wake_at(self.now)
        if wake is None:
            assert answers(self.scheduler, self.now + 1e9) == (None, [])
            return
        assert wake > self.now
        before = math.nextafter(wake, -math.inf)
        assert before <= self.now or answers(self.scheduler, before) == (None, [])
        assert answers(self.scheduler, wake) != (None, [])

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        queue = self.reference.queue
        assert self.scheduler.queued == len(queue)
        assert self.scheduler.queued_tokens == sum(item.request.token_budget for item in queue)
        depths = {kind: len(self.reference.of(kind)) for kind in ("premium", "normal", "shadow")}
        assert self.scheduler.queued_by_priority() == depths


def answers(scheduler: Scheduler, now: float) -> tuple[Any, list[Any]]:
    """What a copy would do at that time."""
    twin = copy.deepcopy(scheduler)
    return twin.poll(now), twin.drain_rejections()


Rules.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestRules = Rules.TestCase


@pytest.mark.parametrize("seed", range(40))
def test_an_overloaded_device_is_scheduled_as_the_rules_say(seed: int) -> None:
    draw, machine = random.Random(seed), Rules()
    machine.start(draw.choice([4, 8]), 0.25, draw.choice([0.0, 5.0]))
    models = ["a@1", "b@1", "c@1"][: draw.choice([1, 1, 2, 3])]
    for model in models:
        machine.seed(model, draw.choice([1.0, 4.0, 12.0]), draw.choice([0.0, 0.5, 1.0]))
    for _ in range(40):
        many = [
            (
                draw.choice(models),
                draw.randint(1, 4),
                draw.choice([0.0, 0.0, -3.0]),
                draw.choice([12.0, 20.0, 20.0, 30.0, 60.0, math.inf]),
                draw.choice(["premium", "normal", "normal", "shadow"]),
            )
            for _ in range(draw.randint(0, 5))
        ]
        machine.offer(many, draw.choice([0.0, 0.5, 2.0]))
        machine.poll() if draw.random() < 0.7 else machine.sleep_until_woken()
        machine.counts_agree()
        machine.let_time_pass(draw.choice([0.0, 1.0, 4.0, 9.0]))
        if draw.random() < 0.3:
            machine.cancel(draw.randint(0, 6))
        if machine.scheduler.running is not None and draw.random() < 0.6:
            machine.end(draw.choice([1.0, 5.0, 5.0, 14.0, 30.0]), draw.choice("ddddfa"))
