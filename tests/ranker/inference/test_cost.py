"""What a batch costs: the line, its tail, and what must not bend it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranker.inference.cost import FORGET_AFTER_MS, CostModel, Sums


def learned(points: list[tuple[int, float]]) -> CostModel:
    cost = CostModel()
    for now, (tokens, ms) in enumerate(points):
        cost.observe(tokens, ms, float(now))
    return cost


@given(
    st.lists(st.tuples(st.integers(1, 4096), st.floats(0.0, 100.0)), min_size=2, max_size=40).filter(
        lambda points: max(points)[0] >= 2 * min(points)[0]
    )
)
def test_the_line_is_the_least_squares_one_where_neither_part_is_negative(points: list[tuple[float, float]]) -> None:
    sums = Sums()
    for n, ms in points:
        sums.count(n, ms, 1)
    slope, fixed = np.polyfit([n for n, _ in points], [ms for _, ms in points], 1)
    found = sums.line(sloped=True)
    if slope > 1e-6 and fixed > 1e-3:
        assert found == pytest.approx((fixed, slope), rel=1e-4, abs=1e-3)
    assert min(found) >= 0.0


def test_what_was_taken_away_no_longer_counts() -> None:
    sums, rest = Sums(), Sums()
    for n, ms in ((8, 3.0), (16, 5.0), (64, 9.0)):
        sums.count(n, ms, 1)
        rest.count(n, ms, 1)
    sums.count(4000, 900.0, 1)
    sums.count(4000, 900.0, -1)
    assert sums.line(sloped=True) == rest.line(sloped=True)


def test_exact_costs_are_learned_exactly() -> None:
    cost = learned([(n, 4.0 + 0.25 * n) for n in (8, 64, 16, 32)])
    assert (cost.fixed_ms, cost.per_token_ms) == (4.0, 0.25)
    assert cost.predict(100) == 29.0


def test_the_prediction_covers_99_of_100_batches() -> None:
    draw = random.Random(1)
    sizes = [draw.randint(16, 1024) for _ in range(2000)]
    took = [2.0 + 0.01 * n + draw.expovariate(4.0) for n in sizes]
    cost = learned(list(zip(sizes[:1000], took[:1000], strict=True)))
    covered = sum(cost.predict(n) >= ms for n, ms in zip(sizes[1000:], took[1000:], strict=True))
    assert covered >= 960


def test_a_seed_holds_until_batches_of_such_sizes_have_run() -> None:
    cost = CostModel()
    cost.seed(20.0, 0.5, 64)
    assert (cost.fixed_ms, cost.per_token_ms, cost.predict(10)) == (20.0, 0.5, 25.0)
    for now in range(16):
        cost.observe(1, 2.0, now)
        cost.observe(64, 8.0, now)
    assert cost.predict(64) == pytest.approx(8.0, abs=0.5)


@pytest.mark.parametrize(("fixed", "per_token"), [(-1.0, 0.0), (math.nan, 0.0), (1.0, math.inf), (1.0, -0.1)])
def test_a_seed_that_cannot_be_is_refused(fixed: float, per_token: float) -> None:
    with pytest.raises(ValueError, match="must be finite and not negative"):
        CostModel().seed(fixed, per_token, 64)


def test_nothing_known_predicts_nothing_and_a_batch_of_one_size_says_nothing_of_much_smaller_ones() -> None:
    assert not CostModel().knows(5)
    cost = learned([(4096, 500.0)] * 30)
    assert cost.knows(4096)
    assert not cost.knows(5)


def test_of_a_constant_size_a_larger_batch_is_taken_to_cost_in_proportion_and_a_smaller_one_the_same() -> None:
    cost = learned([(100, 10.0)] * 40)
    assert cost.predict(200) == 20.0
    assert cost.predict(60) == 10.0
    assert cost.fixed_ms == 0.0, "it cannot be told from the rest"


def test_nearly_constant_sizes_with_noise_do_not_tilt_the_line() -> None:
    draw = random.Random(2)
    cost = learned([(draw.choice([15, 16]), 20.0 + draw.uniform(-1.0, 1.0)) for _ in range(100)])
    assert 19.0 <= cost.predict(8) <= 22.0
    assert 19.0 <= cost.predict(16) <= 23.0


def test_small_batches_are_remembered_through_an_hour_of_large_ones() -> None:
    cost = learned([(1, 2.0), (2, 2.1), *[(4096, 50.0)] * 5000])
    assert cost.predict(1) < 4.0


def test_one_stall_of_the_machine_does_not_speak_for_the_rest() -> None:
    sizes = [1, 8, 16] * 8
    cost = learned([*((n, 20.0) for n in sizes), (16, 5000.0), *((n, 20.0) for n in sizes)])
    assert cost.predict(16) < 24.0


def test_a_few_stalls_in_a_hundred_do_not_make_all_traffic_allow_for_them() -> None:
    draw = random.Random(3)
    cost = learned([(16, 20.0 + 50.0 * (draw.random() < 0.04)) for _ in range(300)])
    assert cost.predict(16) < 24.0


def test_what_a_cost_itself_varies_by_is_allowed_for() -> None:
    draw = random.Random(4)
    cost = learned([(16, 20.0 + (5.0 if draw.random() < 0.2 else 0.0)) for _ in range(300)])
    assert cost.predict(16) >= 25.0


def test_two_slow_batches_in_a_row_may_be_a_stall_and_eight_are_none() -> None:
    cost = learned([(16, 20.0)] * 32)
    for now in range(8):
        cost.observe(16, 60.0, now)
        assert now >= 2 or cost.predict(16) < 24.0
    assert cost.predict(16) >= 50.0


def test_a_device_that_became_slower_is_believed_within_a_few_batches() -> None:
    cost = learned([(n, 5.0) for n in (1, 16, 4, 8) * 4])
    for now in range(8):
        cost.observe(16, 40.0, now)
    assert cost.predict(16) >= 30.0


@pytest.mark.parametrize("took", [-1.0, math.nan, math.inf, -math.inf])
def test_a_time_that_cannot_be_teaches_nothing(took: float) -> None:
    cost = learned([(8, 5.0), (16, 9.0)])
    before = cost.predict(16)
    cost.observe(16, took, 0.0)
    assert cost.predict(16) == before


def test_a_time_of_zero_is_one_that_a_coarse_clock_gives() -> None:
    cost = learned([(8, 0.0), (16, 0.0)])
    assert cost.knows(16)
    assert cost.predict(16) == 0.0


def test_one_slow_start_does_not_refuse_a_model_for_ever() -> None:
    cost = learned([(1, 900.0)])
    cost.distrust(FORGET_AFTER_MS / 2)
    assert cost.knows(1)
    cost.distrust(FORGET_AFTER_MS + 1.0)
    assert not cost.knows(1)


def test_what_an_operator_said_is_kept_when_the_rest_is_forgotten() -> None:
    cost = CostModel()
    cost.seed(20.0, 0.0, 64)
    cost.distrust(1e9)
    cost.observe(1, 900.0, 0.0)
    cost.distrust(1e9)
    assert cost.predict(1) == 20.0


def test_the_next_batch_reaches_at_most_four_times_what_was_seen() -> None:
    assert learned([(10, 1.0)]).reach == 40.0
    assert CostModel().reach == 0.0


def test_an_absurd_time_leaves_no_trace_once_others_have_taken_its_place() -> None:
    cost = learned([(1, 1e18)])
    cost.distrust(1e6)
    for now in range(200):
        cost.observe(1 + now % 8, 20.0, 1e6 + now)
    assert cost.predict(8) == 20.0
    cost = learned([(1, 1e18), *[(1, 20.0)] * 40])
    assert cost.predict(1) == 20.0
