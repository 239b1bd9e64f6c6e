"""The scheduler's contract, and for each fault that other schedulers had a test that ours has not."""

from __future__ import annotations

import inspect
import math

import pytest

from ranker.inference.lazy_heap import LazyHeap
from ranker.inference.scheduler import Batch, Rejection, Request, Scheduler, SchedulerConfig
from ranker.inference.share import Share, batches_before


def request(
    name: str,
    tokens: int = 1,
    arrival: float = 0.0,
    deadline: float = 1000.0,
    priority: str = "normal",
    model: str = "m@1",
) -> Request:
    return Request(name, model, tokens, arrival, deadline, priority)


def scheduler(fixed: float = 20.0, per_token: float = 0.0, **limits: object) -> Scheduler:
    config = SchedulerConfig(**{"max_batch_requests": 16, "margin_ms": 0.0, "max_wait_ms": 0.0, **limits})  # type: ignore[arg-type]
    made = Scheduler(config)
    made.seed_cost("m@1", fixed_ms=fixed, per_token_ms=per_token)
    return made


def names(batch: Batch | None) -> list[str]:
    return [] if batch is None else [each.request_id for each in batch.requests]


def offer(made: Scheduler, *requests: Request, now: float = 0.0) -> list[Rejection]:
    return [rejection for each in requests for rejection in made.offer(each, now)]


def reasons(rejections: list[Rejection]) -> list[tuple[str, str]]:
    return [(each.request_id, each.reason) for each in rejections]


def finish(made: Scheduler, batch: Batch | None, start: float, end: float) -> None:
    assert batch is not None
    made.done(batch, start, end)


# The contract


def test_the_defaults_are_those_of_the_design() -> None:
    config = SchedulerConfig()
    assert (config.max_batch_tokens, config.max_batch_requests) == (4096, 64)
    assert (config.max_queue_requests, config.max_queue_tokens) == (10_000, 1_000_000)
    assert (config.normal_share, config.max_wait_ms, config.margin_ms) == (0.25, 5.0, 1.0)
    assert config.ageing_ms == {"premium": 50.0, "normal": 200.0}
    assert list(inspect.signature(Scheduler.done).parameters)[1:] == ["batch", "started_ms", "finished_ms", "failed"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_batch_tokens", 0),
        ("max_queue_requests", -1),
        ("normal_share", 1.5),
        ("normal_share", math.nan),
        ("max_wait_ms", -1.0),
        ("margin_ms", math.inf),
        ("ageing_ms", {"normal": -1.0}),
    ],
)
def test_a_limit_that_cannot_be_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        SchedulerConfig(**{name: value})  # type: ignore[arg-type]


def test_one_batch_runs_at_a_time() -> None:
    made = scheduler()
    offer(made, request("a"))
    batch = made.poll(0.0)
    offer(made, request("b"))
    assert made.poll(1.0) is None
    finish(made, batch, 0.0, 20.0)
    assert names(made.poll(20.0)) == ["b"]


def test_a_batch_holds_one_model_and_keeps_both_limits() -> None:
    made = scheduler(max_batch_tokens=10, max_batch_requests=3)
    made.seed_cost("x@1", fixed_ms=1.0, per_token_ms=0.0)
    offer(made, request("a", 4), request("b", 4, model="x@1"), request("c", 4), request("d", 4), request("e", 1))
    batch = made.poll(0.0)
    assert batch is not None
    assert (batch.model_key, names(batch), batch.tokens) == ("m@1", ["a", "c"], 8)


def test_the_earlier_of_deadline_and_ageing_goes_first() -> None:
    made = scheduler(fixed=1.0, max_batch_requests=1, ageing_ms={"normal": 100.0})
    offer(made, request("old, no hurry", arrival=-50.0, deadline=9000.0), request("new, hurry", deadline=60.0))
    offer(made, request("new, hurrier", deadline=40.0))
    order = []
    for start in (0.0, 1.0, 2.0):
        batch = made.poll(start)
        order += names(batch)
        finish(made, batch, start, start + 1.0)
    assert order == ["new, hurrier", "old, no hurry", "new, hurry"]


def test_a_request_is_let_in_if_what_runs_what_is_ahead_and_itself_end_by_its_deadline() -> None:
    made = scheduler(fixed=20.0, max_batch_requests=2)
    offer(made, request("running"))
    made.poll(0.0)
    assert offer(made, request("a", deadline=50.0), request("b", deadline=50.0), request("c", deadline=60.0)) == []
    # The running batch ends at 20, that of a and b at 40, and the third's at 60.
    (rejection,) = made.offer(request("d", deadline=59.75), 0.0)
    assert rejection == Rejection("d", "deadline", 0.25)
    assert offer(made, request("ahead of all", deadline=49.0)) == []


def test_nothing_is_dispatched_whose_predicted_end_is_past_its_deadline() -> None:
    made = scheduler(fixed=20.0)
    offer(made, request("a", deadline=30.0), request("b", deadline=100.0))
    assert names(made.poll(11.0)) == ["b"]
    assert reasons(made.drain_rejections()) == [("a", "deadline")]
    assert made.drain_rejections() == []


def test_the_margin_is_kept_free_before_the_deadline() -> None:
    assert reasons(offer(scheduler(margin_ms=5.0), request("a", deadline=24.9))) == [("a", "deadline")]
    assert offer(scheduler(margin_ms=5.0), request("a", deadline=25.0)) == []


def test_an_unknown_model_runs_one_request_first_and_again_if_that_failed() -> None:
    made = Scheduler(SchedulerConfig())
    offer(made, *(request(f"r{index}") for index in range(8)))
    probe = made.poll(0.0)
    assert names(probe) == ["r0"]
    assert probe is not None
    made.done(probe, 0.0, 3.0, failed=True)
    probe = made.poll(3.0)
    assert names(probe) == ["r1"]
    finish(made, probe, 3.0, 6.0)
    assert names(made.poll(6.0)) == ["r2", "r3", "r4", "r5"]


def test_shadow_runs_only_when_nothing_else_can() -> None:
    made = scheduler(fixed=10.0)
    offer(made, request("shadow", priority="shadow", deadline=math.inf), request("normal"))
    batch = made.poll(0.0)
    assert names(batch) == ["normal"]
    finish(made, batch, 0.0, 10.0)
    assert names(made.poll(10.0)) == ["shadow"]


def test_shadow_runs_when_all_the_rest_can_no_longer_end_in_time() -> None:
    made = scheduler(fixed=10.0)
    offer(made, request("shadow", priority="shadow", deadline=math.inf), request("normal", deadline=15.0))
    assert names(made.poll(6.0)) == ["shadow"]


@pytest.mark.parametrize(
    "bad",
    [
        request("bad", tokens=-1),
        request("bad", tokens=math.nan),  # type: ignore[arg-type]
        request("bad", arrival=math.nan),
        request("bad", deadline=math.nan),
        request("bad", arrival=5.0, deadline=4.0),
        request("bad", priority="vip"),
    ],
    ids=["negative budget", "nan budget", "nan arrival", "nan deadline", "deadline before arrival", "unknown priority"],
)
def test_what_cannot_be_is_rejected_as_invalid_and_leaves_no_trace(bad: Request) -> None:
    made = scheduler()
    (rejection,) = made.offer(bad, 0.0)
    assert (rejection.request_id, rejection.reason) == ("bad", "invalid")
    assert rejection.detail
    assert (made.queued, made.queued_tokens, made.wake_at(0.0)) == (0, 0, None)


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_none_does_not_upset_it(now: float) -> None:
    made = scheduler()
    offer(made, request("a"), now=5.0)
    assert made.offer(request("b"), now) == []
    assert made.wake_at(now) == 5.0
    assert names(made.poll(now)) == ["a", "b"]


def test_the_same_id_waiting_or_running_is_a_duplicate_and_afterwards_a_new_request() -> None:
    made = scheduler()
    offer(made, request("a"))
    assert reasons(offer(made, request("a"))) == [("a", "duplicate")]
    batch = made.poll(0.0)
    assert reasons(offer(made, request("a"))) == [("a", "duplicate")]
    finish(made, batch, 0.0, 20.0)
    assert offer(made, request("a"), now=20.0) == []


def test_over_the_bound_shadow_goes_before_normal_and_normal_before_premium() -> None:
    made = scheduler(max_queue_requests=3)
    kinds = ("shadow", "normal", "premium")
    offer(made, *(request(kind, priority=kind) for kind in kinds))
    assert reasons(offer(made, request("p2", priority="premium"))) == [("shadow", "queue_full")]
    assert reasons(offer(made, request("p3", priority="premium"))) == [("normal", "queue_full")]
    assert reasons(offer(made, request("n2"))) == [("n2", "queue_full")]


def test_over_the_bound_the_doomed_goes_first_then_the_latest_deadline_and_not_the_newest_by_accident() -> None:
    made = scheduler(max_queue_requests=3)
    offer(made, request("runs", deadline=100.0))
    made.poll(0.0)
    offer(made, request("late", deadline=500.0), request("later", deadline=600.0), request("tight", deadline=45.0))
    assert reasons(offer(made, request("newest", deadline=300.0))) == [("later", "queue_full")]
    made.seed_cost("m@1", fixed_ms=30.0, per_token_ms=0.0)
    # The device is free at 20: "tight" would end at 50.
    assert reasons(offer(made, request("next", deadline=900.0))) == [("tight", "queue_full")]
    assert reasons(offer(made, request("newest of all", deadline=900.0))) == [("newest of all", "queue_full")]


def test_a_newcomer_displaces_by_tokens_only_if_it_then_fits() -> None:
    made = scheduler(max_queue_tokens=10)
    offer(made, request("a", 4, deadline=500.0), request("b", 4, deadline=400.0), request("c", 2, deadline=100.0))
    assert reasons(offer(made, request("d", 9, deadline=300.0))) == [("d", "queue_full")]
    assert made.queued_tokens == 10
    displaced = offer(made, request("e", 7, deadline=300.0))
    assert reasons(displaced) == [("a", "queue_full"), ("b", "queue_full")]
    assert all(each.retry_after_ms > 0.0 or made.config.margin_ms == 0.0 for each in displaced)
    assert made.queued_tokens == 9


def test_a_cancelled_request_never_runs_and_its_room_is_free_at_once() -> None:
    made = scheduler(max_queue_requests=1)
    offer(made, request("a"))
    assert made.cancel("a")
    assert (made.queued, made.queued_tokens) == (0, 0)
    assert offer(made, request("b")) == []
    assert names(made.poll(0.0)) == ["b"]
    assert not made.cancel("a")
    assert not made.cancel("b"), "it runs"


def test_arrivals_from_the_future_count_from_now_and_those_from_the_past_from_then() -> None:
    made = scheduler(fixed=1.0, max_batch_requests=1, ageing_ms={"normal": 100.0})
    offer(made, request("future", arrival=500.0), request("now", arrival=10.0), request("past", arrival=-5.0), now=10.0)
    order = []
    for start in (10.0, 11.0, 12.0):
        batch = made.poll(start)
        order += names(batch)
        finish(made, batch, start, start + 1.0)
    assert order == ["past", "future", "now"]


def test_done_teaches_and_abandon_and_failure_and_impossible_times_do_not() -> None:
    made = scheduler(fixed=20.0)
    for name, took, failed in (("a", 500.0, True), ("b", -5.0, False), ("c", math.nan, False)):
        offer(made, request(name))
        batch = made.poll(0.0)
        assert batch is not None
        made.done(batch, 0.0, took, failed)
        assert made.predicted_ms("m@1", 1) == 20.0
    offer(made, request("d"))
    batch = made.poll(0.0)
    assert batch is not None
    made.abandon(batch)
    made.done(batch, 0.0, 30.0)
    assert made.predicted_ms("m@1", 1) == 20.0
    offer(made, request("e"))
    finish(made, made.poll(0.0), 0.0, 30.0)
    learned = made.predicted_ms("m@1", 1)
    assert learned is not None
    assert learned > 20.0


def test_the_end_of_a_batch_that_is_not_running_is_ignored() -> None:
    made = scheduler()
    offer(made, request("a"), request("b", deadline=2000.0))
    first = made.poll(0.0)
    assert first is not None
    made.abandon(first)
    offer(made, request("c"))
    second = made.poll(1.0)
    made.done(first, 0.0, 1.0)
    assert made.running is second
    assert made.poll(2.0) is None


# Waiting


def arrivals(made: Scheduler, gap: float, count: int, model: str = "m@1") -> float:
    now = 0.0
    for index in range(count):
        now = index * gap
        offer(made, request(f"{model}{index}", arrival=now, deadline=now + 500.0, model=model), now=now)
        if (batch := made.poll(now)) is not None:
            made.done(batch, now, now + 0.0, failed=True)
    return now


def test_a_model_with_a_high_fixed_cost_waits_for_company_and_a_cheap_one_does_not() -> None:
    dear, cheap = scheduler(fixed=20.0, max_wait_ms=5.0), scheduler(fixed=0.5, max_wait_ms=5.0)
    assert arrivals(dear, 1.0, 40) == arrivals(cheap, 1.0, 40) == 39.0
    assert cheap.queued == 0
    assert dear.queued > 0
    wake = dear.wake_at(39.0)
    assert wake is not None
    assert 39.0 < wake <= 44.0
    assert dear.poll(math.nextafter(wake, 0.0)) is None
    assert dear.poll(wake) is not None


def test_a_learned_fixed_cost_makes_a_model_wait() -> None:
    made = Scheduler(SchedulerConfig())
    offer(made, *(request(f"warm{index}", deadline=9000.0) for index in range(32)))
    now = 0.0
    while (batch := made.poll(now)) is not None:
        finish(made, batch, now, now + 20.0)
        now += 20.0
    for index in range(30):
        offer(made, request(f"r{index}", arrival=now, deadline=now + 500.0), now=now)
        now += 0.5
    batch = made.poll(now)
    if batch is not None:
        finish(made, batch, now, now + 20.0)
    offer(made, request("one", arrival=now, deadline=now + 500.0), now=now)
    assert made.poll(now) is None


def test_the_window_counts_from_the_arrival_and_not_from_the_poll() -> None:
    made = scheduler(fixed=20.0, max_wait_ms=5.0)
    arrivals(made, 0.5, 20)
    while (batch := made.poll(30.0)) is not None:
        finish(made, batch, 30.0, 30.0)
    offer(made, request("a", arrival=26.0), request("b", arrival=30.0), now=30.0)
    assert made.poll(30.0) is None
    assert made.wake_at(30.0) == 31.0
    assert names(made.poll(31.0)) == ["a", "b"]


def test_waiting_never_costs_a_deadline() -> None:
    made = scheduler(fixed=20.0, max_wait_ms=5.0)
    arrivals(made, 0.5, 20)
    while (batch := made.poll(30.0)) is not None:
        finish(made, batch, 30.0, 30.0)
    offer(made, request("a", arrival=30.0, deadline=51.0), now=30.0)
    wake = made.wake_at(30.0)
    batch = made.poll(30.0)
    while batch is None and wake is not None:
        batch, wake = made.poll(wake), made.wake_at(wake)
    assert names(batch) == ["a"]
    assert made.drain_rejections() == []


# Overload


def test_overload_slides_to_the_first_window_whose_head_can_end_in_a_full_batch() -> None:
    made = scheduler(fixed=10.0, per_token=1.0, max_batch_requests=32, max_queue_requests=200)
    made.seed_cost("m@1", fixed_ms=0.0, per_token_ms=0.0)
    offer(made, *(request(f"r{index}", deadline=15.0 + index / 2) for index in range(160)))
    made.seed_cost("m@1", fixed_ms=10.0, per_token_ms=1.0)
    batch = made.poll(0.0)
    # T(32) = 42 ms: the first whose deadline is no earlier is r54 (42.0).
    assert names(batch) == [f"r{index}" for index in range(54, 86)]
    assert [each.request_id for each in made.drain_rejections()] == [f"r{index}" for index in range(54)]


def test_a_head_too_tight_for_a_full_batch_gets_a_smaller_one_if_those_behind_can_wait() -> None:
    made = scheduler(fixed=10.0, per_token=1.0, max_batch_requests=32)
    offer(made, request("tight", deadline=12.0), *(request(f"r{index}", deadline=200.0) for index in range(40)))
    batch = made.poll(0.0)
    assert names(batch) == ["tight", "r0"]
    finish(made, batch, 0.0, 12.0)
    assert len(names(made.poll(12.0))) == 32
    assert made.drain_rejections() == []


# Faults that others had


def test_steady_premium_does_not_starve_normal() -> None:
    made, served, now = scheduler(fixed=20.0), [], 0.0
    offer(made, *(request(f"n{index}", deadline=1e6) for index in range(8)))
    for turn in range(4):
        offer(made, *(request(f"p{turn}.{i}", deadline=1e6, priority="premium") for i in range(40)), now=now)
        batch = made.poll(now)
        served.append(sum(name.startswith("n") for name in names(batch)))
        finish(made, batch, now, now + 20.0)
        now += 20.0
    assert sum(served[:3]) == 8
    assert max(served) <= 5


def test_a_flood_of_one_model_does_not_starve_a_normal_request_of_another() -> None:
    made, now, waited = scheduler(fixed=20.0), 0.0, 0
    made.seed_cost("x@1", fixed_ms=20.0, per_token_ms=0.0)
    offer(made, request("alone", deadline=1e6, model="x@1"))
    for turn in range(10):
        for kind in ("premium", "normal"):
            offer(made, *(request(f"{kind}{turn}.{i}", deadline=1e6, priority=kind) for i in range(30)), now=now)
        batch = made.poll(now)
        if "alone" in names(batch):
            break
        waited += 1
        finish(made, batch, now, now + 20.0)
        now += 20.0
    assert waited <= batches_before(made.config, 1, 1, 1, Share(made.config))


def test_normal_traffic_of_another_model_does_not_starve_premium() -> None:
    made, now, tokens = scheduler(fixed=20.0), 0.0, {"premium": 0, "normal": 0}
    made.seed_cost("x@1", fixed_ms=20.0, per_token_ms=0.0)
    for turn in range(40):
        offer(made, *(request(f"p{turn}.{i}", deadline=1e6, priority="premium") for i in range(20)), now=now)
        offer(made, *(request(f"n{turn}.{i}", deadline=1e6, model="x@1") for i in range(20)), now=now)
        batch = made.poll(now)
        assert batch is not None
        for each in batch.requests:
            tokens[each.priority] += each.token_budget
        finish(made, batch, now, now + 20.0)
        now += 20.0
    assert tokens["normal"] / sum(tokens.values()) == pytest.approx(0.25, abs=0.03)


def test_expiry_does_not_wait_for_the_running_batch() -> None:
    made = scheduler(fixed=20.0)
    offer(made, request("runs", deadline=5000.0))
    batch = made.poll(0.0)
    assert batch is not None
    offer(made, request("waits", deadline=60.0))
    wake = made.wake_at(1.0)
    assert wake == math.nextafter(40.0, math.inf), "after 40 ms not even a batch of its own would do"
    assert made.poll(40.0) is None
    assert made.drain_rejections() == []
    assert made.poll(wake) is None
    assert reasons(made.drain_rejections()) == [("waits", "deadline")]
    assert made.wake_at(wake) is None


def test_a_client_that_left_is_not_computed() -> None:
    made = scheduler(max_batch_requests=16)
    offer(made, *(request(f"r{index}", deadline=5000.0) for index in range(64)))
    batch = made.poll(0.0)
    assert sum(made.cancel(f"r{index}") for index in range(64)) == 48
    finish(made, batch, 0.0, 20.0)
    assert made.poll(20.0) is None
    assert len(names(batch)) == 16


def test_after_a_burst_of_client_time_outs_healthy_traffic_is_served_as_before() -> None:
    made = scheduler()
    for index in range(5000):
        offer(made, request(f"gone{index}", deadline=100.0))
        made.cancel(f"gone{index}")
    offer(made, request("healthy", deadline=100.0))
    assert names(made.poll(0.0)) == ["healthy"]
    assert all(len(heap) <= 200 for heap in heaps(made))


def heaps(made: Scheduler) -> list[LazyHeap]:
    queues = made._room.queues.values()
    return [queue.latest for queue in queues] + [lane.expiry for queue in queues for lane in queue.lanes.values()]


def test_the_bookkeeping_of_what_left_is_bounded_by_what_waits() -> None:
    made = scheduler()
    offer(made, *(request(f"stays{index}", deadline=9e6) for index in range(100)))
    for index in range(5000):
        offer(made, request(f"gone{index}", deadline=8e6))
        made.cancel(f"gone{index}")
    assert all(len(heap) <= 2 * 101 for heap in heaps(made))


def test_a_full_queue_refuses_at_once_and_says_when_to_retry() -> None:
    made = scheduler(max_queue_requests=1)
    offer(made, request("runs"))
    made.poll(0.0)
    offer(made, request("waits"))
    (rejection,) = made.offer(request("refused"), 5.0)
    assert rejection == Rejection("refused", "queue_full", 15.0)


def test_the_oldest_is_not_turned_away_for_ever_while_nothing_runs() -> None:
    # Every request needs a batch of its own, and only just makes it.
    made, done, now = scheduler(fixed=10.0, max_batch_requests=1, max_queue_requests=4), 0, 0.0
    for index in range(400):
        now = index * 2.0
        offer(made, request(f"r{index}", arrival=now, deadline=now + 21.0), now=now)
        if made.running is None and (batch := made.poll(now)) is not None:
            started = now
        elif made.running is not None and now >= started + 10.0:
            batch = made.running
            finish(made, batch, started, started + 10.0)
            done += 1
            if made.poll(now) is not None:
                started = now
    assert done >= 75, "800 ms at 10 ms each, in steps of 2"


def test_a_request_larger_than_a_batch_or_the_queue_is_refused_and_does_not_loop() -> None:
    made = scheduler(max_batch_tokens=10)
    (rejection,) = made.offer(request("big", 11), 0.0)
    assert (rejection.reason, rejection.detail) == ("too_large", "token_budget is 11; a batch holds 10")
    assert offer(made, request("fits", 10)) == []
    assert names(made.poll(0.0)) == ["fits"]
    small_queue = scheduler(max_batch_tokens=10, max_queue_tokens=5)
    assert reasons(offer(small_queue, request("big", 6))) == [("big", "too_large")]


def test_the_batch_limit_counts_the_request_itself() -> None:
    made = scheduler(max_batch_tokens=10)
    offer(made, request("a", 6), request("b", 5))
    assert names(made.poll(0.0)) == ["a"]


def test_a_deadline_of_zero_is_not_taken_for_no_deadline() -> None:
    made = scheduler()
    assert reasons(offer(made, request("a", deadline=0.0))) == [("a", "deadline")]


def test_a_stuck_batch_can_be_abandoned() -> None:
    made = scheduler()
    offer(made, request("stuck"), now=0.0)
    batch = made.poll(0.0)
    offer(made, request("next", deadline=9000.0), now=1.0)
    assert made.poll(500.0) is None
    assert batch is not None
    made.abandon(batch)
    assert names(made.poll(500.0)) == ["next"]


def test_a_slow_first_batch_does_not_refuse_a_model_for_ever() -> None:
    made, now = Scheduler(SchedulerConfig()), 0.0
    offer(made, request("cold", deadline=5000.0))
    finish(made, made.poll(0.0), 0.0, 900.0)
    served = 0
    for index in range(300):
        now = 900.0 + 10.0 * index
        offer(made, request(f"r{index}", arrival=now, deadline=now + 50.0), now=now)
        if (batch := made.poll(now)) is not None:
            finish(made, batch, now, now + 2.0)
            served += len(batch.requests)
    assert served >= 150


def test_model_keys_nobody_asks_for_any_more_are_forgotten() -> None:
    made = scheduler()
    for index in range(5000):
        offer(made, request(f"r{index}", model=f"m@{index}"), now=index)
        made.cancel(f"r{index}")
    assert len(made._models) <= 1024
    assert made.predicted_ms("m@1", 1) == 20.0, "what was seeded stays"


# Cost in operations, counted and not timed


class Counted(float):
    """A deadline that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        Counted.compared += 1
        return float.__lt__(self, other)

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return float.__eq__(self, other)

    def __neg__(self) -> Counted:
        return Counted(-float(self))

    __hash__ = float.__hash__


def comparisons_a_call(queued: int) -> dict[str, float]:
    config = SchedulerConfig(max_queue_requests=queued, max_queue_tokens=10**9, ageing_ms={})
    made = Scheduler(config)
    made.seed_cost("m@1", fixed_ms=0.0, per_token_ms=0.0)
    for index in range(queued):
        made.offer(Request(f"r{index}", "m@1", 1, 0.0, Counted(1e6 + index)), 0.0)
    rounds = 200

    def counted(act: object) -> float:
        assert callable(act)
        Counted.compared = 0
        for index in range(rounds):
            act(index)
        return Counted.compared / rounds

    def displaces(index: int) -> None:
        assert offer(made, request(f"v{index}", deadline=Counted(1e6 + 0.5 + index * 97 % queued)))

    def cancels(index: int) -> None:
        made.cancel(f"r{(index * 31) % queued}")

    def offers(index: int) -> None:
        offer(made, request(f"o{index}", deadline=Counted(1e6 + 0.25 + index * 89 % queued)))

    def runs(index: int) -> None:
        batch = made.poll(0.0)
        assert batch is not None
        made.done(batch, 0.0, 0.0)

    found = {"victim": counted(displaces), "cancel": counted(cancels), "offer": counted(offers)}
    rounds = 10
    found["poll"] = counted(runs) / config.max_batch_requests
    rounds = 200
    found["expire"] = counted(lambda index: made.poll(1e6 + 700.0 + index))
    return found


def test_comparisons_a_call_grow_with_the_logarithm_of_the_queue() -> None:
    small, large = comparisons_a_call(1_000), comparisons_a_call(100_000)
    for name in small:
        # log2 of 100,000 over that of 1,000 is 1.67; the base of 40 is for what does not depend on n.
        assert large[name] <= 2.0 * small[name] + 40.0, f"{name}: {small[name]} → {large[name]}"
