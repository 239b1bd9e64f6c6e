"""Whole days, overloads and floods, played by the simulator: goodput, recovery, shares and bounds."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import chain

import pytest

from ranker.inference.scheduler import Batch, Request, Scheduler, SchedulerConfig
from ranker.inference.share import Share, batches_before
from tests.ranker.inference.simulator import Outcome, affine, play, poisson

FULL_PER_S = 800.0


def twenty_by_sixteen(seeded: bool = True, **limits: object) -> Scheduler:
    """The device of the design's overload table: 20 ms a batch of 16."""
    made = Scheduler(SchedulerConfig(max_batch_requests=16, **limits))  # type: ignore[arg-type]
    if seeded:
        made.seed_cost("m@1", fixed_ms=20.0, per_token_ms=0.0)
    return made


@pytest.mark.parametrize("seeded", [True, False], ids=["told its cost", "told nothing"])
@pytest.mark.parametrize("times", [2, 4])
def test_under_overload_nearly_all_that_the_device_can_do_is_answered_in_time(times: int, seeded: bool) -> None:
    seconds = 4
    requests = poisson(times * FULL_PER_S, 0.0, seconds * 1000.0, seed=times)
    outcome = play(twenty_by_sixteen(seeded), requests, affine(20.0, jitter=0.02))
    assert outcome.in_time() >= 0.95 * FULL_PER_S * seconds
    assert outcome.late() <= 0.001 * len(outcome.ended)
    assert set(outcome.reasons()) == {"deadline"}
    assert len(outcome.ended) + len(outcome.rejected) == len(outcome.offered)


@pytest.mark.parametrize("times", [2, 4])
def test_under_overload_batches_of_mixed_sizes_stay_full(times: int) -> None:
    made = Scheduler(SchedulerConfig(max_batch_tokens=4096))
    made.seed_cost("m@1", fixed_ms=6.0, per_token_ms=0.005)
    per_s = 4096.0 / (6.0 + 0.005 * 4096.0) * 1000.0  # tokens
    sizes = (60, 120, 240, 480)
    rate = times * per_s / (sum(sizes) / len(sizes))
    requests = poisson(rate, 0.0, 5000.0, seed=times, budget_ms=80.0, tokens=lambda draw: draw.choice(sizes))
    outcome = play(made, requests, affine(6.0, 0.005, jitter=0.02))
    done = sum(batch.tokens for _, _, batch in outcome.batches)
    assert done >= 0.95 * per_s * 5.0
    assert outcome.late() <= 0.001 * len(outcome.ended)


def test_after_an_overload_things_are_normal_within_one_deadline() -> None:
    burst_end = 1500.0
    requests = chain(
        poisson(400.0, 0.0, 500.0, seed=1, name="before"),
        poisson(3200.0, 500.0, burst_end, seed=2, name="burst"),
        poisson(400.0, burst_end, 4000.0, seed=3, name="after"),
    )
    outcome = play(twenty_by_sixteen(), requests, affine(20.0, jitter=0.02))
    lost = [outcome.offered[name].arrival_ms for name in outcome.rejected if name.startswith("after")]
    assert not [arrival for arrival in lost if arrival > burst_end + 50.0]
    assert outcome.late() == 0


def test_below_capacity_with_room_to_spare_nobody_is_turned_away() -> None:
    outcome = play(twenty_by_sixteen(), poisson(300.0, 0.0, 5000.0, seed=4), affine(20.0))
    assert not outcome.rejected
    assert outcome.in_time() == len(outcome.offered)


def flood(
    premium_per_s: float, normal_per_s: float, seconds: float, sizes: tuple[int, ...], normal_ms: float
) -> Iterator[Request]:
    def size(draw: random.Random) -> int:
        return draw.choice(sizes)

    end = seconds * 1000.0
    yield from poisson(premium_per_s, 0.0, end, seed=1, budget_ms=60.0, tokens=size, priority="premium", name="premium")
    yield from poisson(normal_per_s, 0.0, end, seed=2, budget_ms=normal_ms, tokens=size, name="normal")


def bounds_kept(made: Scheduler, outcome: Outcome, longest_ms: float, largest: int) -> float:
    """The largest wait over bound of the normal requests; ahead of each is what arrived before and still waited."""
    started, worst = outcome.started, 0.0
    normal = sorted(
        (outcome.offered[name] for name in started if outcome.offered[name].priority == "normal"),
        key=lambda each: each.arrival_ms,
    )
    first = 0
    for index, request in enumerate(normal):
        while started[normal[first].request_id] <= request.arrival_ms and first < index:
            first += 1
        ahead = [each for each in normal[first : index + 1] if started[each.request_id] > request.arrival_ms]
        batches = batches_before(
            made.config, sum(each.token_budget for each in ahead), len(ahead), largest, Share(made.config)
        )
        bound = longest_ms + batches * longest_ms + made.config.max_wait_ms
        worst = max(worst, (started[request.request_id] - request.arrival_ms) / bound)
    return worst


@pytest.mark.parametrize("sizes", [(120,), (20, 120, 400), (1,)], ids=str)
@pytest.mark.parametrize("normal_part", [0.05, 0.25, 1.0])
def test_adversarial_premium_load_leaves_normal_its_share_and_its_bound(
    sizes: tuple[int, ...], normal_part: float
) -> None:
    made = Scheduler(SchedulerConfig())
    made.seed_cost("m@1", fixed_ms=5.0, per_token_ms=0.005)
    size = sum(sizes) / len(sizes)
    per_batch = min(4096.0 / size, 64.0)
    took = 5.0 + 0.005 * per_batch * size
    capacity = per_batch / took * 1000.0
    seconds = min(4.0, 6000.0 / capacity)
    requests = flood(1.5 * capacity, normal_part * capacity, seconds, sizes, normal_ms=200.0)
    outcome = play(made, requests, affine(5.0, 0.005))
    served = len(outcome.waits("normal"))
    offered = sum(request.priority == "normal" for request in outcome.offered.values())
    assert served >= 0.9 * min(offered, 0.25 * capacity * seconds)
    assert len(outcome.waits("premium")) >= 0.9 * (capacity * seconds - served) - 64
    assert outcome.late() == 0
    assert bounds_kept(made, outcome, 5.0 + 0.005 * 4096, max(sizes)) <= 1.0


def test_while_normal_waits_it_has_its_share_of_tokens_less_one_largest_request_across_models() -> None:
    draw = random.Random(5)
    made = Scheduler(SchedulerConfig(max_batch_tokens=1000, max_queue_tokens=10**8))
    for model in "ab":
        made.seed_cost(model, fixed_ms=1.0, per_token_ms=0.01)
    now, count, total, normal = 0.0, 0, 0, 0
    for _ in range(400):
        for _ in range(12):
            count += 1
            priority, model = draw.choice(["premium", "premium", "normal"]), draw.choice("aab")
            made.offer(Request(f"r{count}", model, draw.randint(1, 300), now, now + 1e6, priority), now)
        batch = made.poll(now)
        assert batch is not None
        if made.queued_by_priority()["normal"] == 0:
            total = normal = 0
        else:
            total += batch.tokens
            normal += sum(each.token_budget for each in batch.requests if each.priority == "normal")
            assert normal >= 0.25 * total - 300
        made.done(batch, now, now + 11.0)
        now += 11.0


def test_premium_is_served_first_while_normal_has_its_share() -> None:
    made = twenty_by_sixteen()
    requests = chain(
        poisson(500.0, 0.0, 4000.0, seed=1, budget_ms=60.0, priority="premium", name="p"),
        poisson(800.0, 0.0, 4000.0, seed=2, budget_ms=100.0, name="n"),
    )
    outcome = play(made, requests, affine(20.0))
    premium = [name for name in outcome.offered if name.startswith("p")]
    assert sum(name in outcome.rejected for name in premium) <= 0.02 * len(premium)
    assert sum(outcome.waits("premium")) / len(premium) < sum(outcome.waits("normal")) / len(outcome.waits("normal"))


def test_shadow_fills_what_is_left_and_costs_the_others_no_deadline() -> None:
    made = twenty_by_sixteen()
    shadow = [Request(f"s{i}", "m@1", 1, 0.0, math.inf, "shadow") for i in range(3000)]
    outcome = play(made, chain(shadow, poisson(200.0, 0.0, 3000.0, seed=6, budget_ms=100.0)), affine(20.0))
    assert len(outcome.ended) == len(outcome.offered)
    assert outcome.late() == 0
    mixed = [
        batch for _, _, batch in outcome.batches if len({each.priority == "shadow" for each in batch.requests}) > 1
    ]
    assert not mixed


@pytest.mark.parametrize(("busy_per_s", "least"), [(300.0, 0.95), (1600.0, 0.01)], ids=["busy", "overloaded"])
def test_a_rarely_used_model_is_served_beside_a_busy_one(busy_per_s: float, least: float) -> None:
    # Under overload a request that needs a batch of its own is the first to be refused, since it would end last: the
    # next test has what one more of them would cost, and how an operator says that they are worth it.
    made = twenty_by_sixteen()
    made.seed_cost("x@1", fixed_ms=20.0, per_token_ms=0.0)
    requests = chain(
        poisson(busy_per_s, 0.0, 3000.0, seed=7, budget_ms=120.0, name="a"),
        poisson(15.0, 0.0, 3000.0, seed=8, budget_ms=120.0, model_key="x@1", name="x"),
    )
    outcome = play(made, requests, affine(20.0))
    answered = sum(name.startswith("x") for name in outcome.ended)
    assert answered >= least * sum(name.startswith("x") for name in outcome.offered)
    assert answered > 0
    assert outcome.late() == 0


@pytest.mark.parametrize("priority", ["normal", "premium"])
def test_a_request_for_a_rare_model_costs_a_batch_of_others_and_is_served_first_if_it_is_said_to_be_worth_it(
    priority: str,
) -> None:
    made = twenty_by_sixteen()
    made.seed_cost("x@1", fixed_ms=20.0, per_token_ms=0.0)
    requests = chain(
        poisson(1600.0, 0.0, 3000.0, seed=7, budget_ms=120.0, name="a"),
        poisson(15.0, 0.0, 3000.0, seed=8, budget_ms=120.0, model_key="x@1", name="x", priority=priority),
    )
    outcome = play(made, requests, affine(20.0))
    rare = sum(name.startswith("x") for name in outcome.ended)
    its_batches = sum(batch.model_key == "x@1" for _, _, batch in outcome.batches)
    places = FULL_PER_S * outcome.batches[-1][1] / 1000.0
    assert len(outcome.ended) - rare == pytest.approx(places - 16 * its_batches, rel=0.05), "it takes sixteen places"
    if priority == "premium":
        assert rare == sum(name.startswith("x") for name in outcome.offered)


@pytest.mark.parametrize(("load", "least"), [(0.9, 0.99), (1.5, 0.4), (3.0, 0.03)])
def test_cached_histories_do_not_starve_those_that_have_to_be_encoded(load: float, least: float) -> None:
    made = Scheduler(SchedulerConfig(max_batch_tokens=2048))
    made.seed_cost("m@1", fixed_ms=5.0, per_token_ms=0.01)
    rate = load * 2048 / (5.0 + 0.01 * 2048) * 1000.0 / 100.0  # of a mean of 100 tokens
    requests = chain(
        poisson(0.9 * rate, 0.0, 4000.0, seed=1, budget_ms=100.0, tokens=lambda draw: 55, name="hit"),
        poisson(0.1 * rate, 0.0, 4000.0, seed=2, budget_ms=100.0, tokens=lambda draw: 505, name="miss"),
    )
    outcome = play(made, requests, affine(5.0, 0.01, jitter=0.02))
    answered = sum(name.startswith("miss") for name in outcome.ended)
    assert answered >= least * sum(name.startswith("miss") for name in outcome.offered)
    assert outcome.late() == 0


def test_stalls_of_the_machine_cost_their_own_batches_and_few_others() -> None:
    draw, took = random.Random(11), list[float]()

    def stalls(batch: Batch) -> float:
        took.append(20.1 + draw.expovariate(4.0) + (draw.uniform(5.0, 60.0) if draw.random() < 0.03 else 0.0))
        return took[-1]

    outcome = play(twenty_by_sixteen(max_batch_tokens=16), poisson(2 * FULL_PER_S, 0.0, 8000.0, seed=12), stalls)
    best = 16.0 * 8000.0 / (sum(took) / len(took))
    assert outcome.in_time() >= 0.94 * best, "3 in 100 are stalls, and end late themselves"


def test_a_device_that_slows_down_for_a_while_is_followed_and_forgiven() -> None:
    starts = iter(range(10**9))

    def slows(batch: Batch) -> float:
        return 35.0 if 50 <= next(starts) < 80 else 20.0

    made = twenty_by_sixteen()
    outcome = play(made, poisson(600.0, 0.0, 8000.0, seed=9, budget_ms=80.0), slows)
    assert outcome.late() <= 5 * 16, "the few batches it takes to notice"
    assert outcome.in_time(since_ms=4000.0) >= 0.95 * 600.0 * 4.0


def test_one_stall_costs_about_its_own_length() -> None:
    starts = iter(range(10**9))

    def stalls(batch: Batch) -> float:
        return 300.0 if next(starts) == 60 else 20.0

    outcome = play(twenty_by_sixteen(), poisson(600.0, 0.0, 5000.0, seed=10), stalls)
    assert len(outcome.offered) - outcome.in_time() <= 600.0 * 0.45


def test_the_same_calls_give_the_same_batches() -> None:
    def once() -> list[tuple[float, float, Batch]]:
        made = Scheduler(SchedulerConfig(max_batch_requests=16))
        requests = chain(
            poisson(900.0, 0.0, 1500.0, seed=1, priority="premium", name="p"),
            poisson(600.0, 0.0, 1500.0, seed=2, budget_ms=100.0, name="n", model_key="x@1"),
        )
        return play(made, requests, affine(15.0, 0.1, jitter=0.1)).batches

    assert once() == once()


def a_day() -> Iterator[Request]:
    """Quiet nights, busy evenings, and a rush of a minute at noon: about 50,000 requests."""
    hour = 3_600_000.0
    for number in range(24):
        rate = 0.2 + 0.7 * math.exp(-(((number - 20) / 4.0) ** 2))
        for kind, part, budget in (("premium", 0.2, 60.0), ("normal", 0.8, 100.0)):
            yield from poisson(
                rate * part,
                number * hour,
                (number + 1) * hour,
                seed=number,
                budget_ms=budget,
                tokens=lambda draw: draw.randint(20, 200),
                priority=kind,
                name=f"{kind}{number}.",
            )
    yield from poisson(
        700.0, 12 * hour, 12 * hour + 30_000.0, seed=99, budget_ms=100.0, tokens=lambda draw: 100, name="rush"
    )


def test_a_day_of_traffic_is_answered_in_time_in_seconds() -> None:
    made = Scheduler(SchedulerConfig())
    outcome = play(made, a_day(), affine(4.0, 0.004, jitter=0.05))
    assert len(outcome.offered) > 40_000
    assert len(outcome.ended) + len(outcome.rejected) == len(outcome.offered)
    assert outcome.in_time() >= 0.999 * len(outcome.offered)
    assert outcome.late() <= 0.001 * len(outcome.ended)
    assert (made.queued, made.queued_tokens, made.running) == (0, 0, None)
