"""Positions: what they are worth by exploration, what weights they give, and what learning gets back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.events import RankedItem, RankingEvent
from tests.training.logs import at
from training.bench.position import MODEL, NAIVE, ORACLE, PositionPlan, bench_position, quick
from training.labels import Pair
from training.position import PositionError, Propensities, ShuffledSlots, item_weights, position_ids

POOL: list[tuple[str, str | None, float]] = [(name, None, 0.0) for name in "abcd"]


def shown(order: str, chances: list[Any], user: str = "u", pool: Any = POOL) -> RankingEvent:
    items = [
        RankedItem(action=action, position=place, propensity=chance)
        for place, (action, chance) in enumerate(zip(order, chances, strict=True), 1)
    ]
    return RankingEvent(id="r", time=at(0), user=user, items=items, pool=pool)


def gains(useful: str, order: str) -> dict[Pair, float]:
    return {(action, None): float(action in useful) for action in order}


def drawn_log(
    seed: int, lists: int, theta: tuple[float, ...], merit: tuple[float, ...], exploration: float
) -> ShuffledSlots:
    """Lists of two of four, drawn by Plackett–Luce over merit; useful by the position-based model."""
    rng = np.random.default_rng(seed)
    slots = ShuffledSlots()
    weights = np.exp(np.array(merit) / exploration)
    for number in range(lists):
        first = int(rng.choice(4, p=weights / weights.sum()))
        rest = weights.copy()
        rest[first] = 0.0
        second = int(rng.choice(4, p=rest / rest.sum()))
        order = "abcd"[first] + "abcd"[second]
        chances = [float(weights[first] / weights.sum()), float(rest[second] / rest.sum())]
        useful = "".join(
            name
            for name, place, chance in zip(order, (first, second), theta, strict=True)
            if rng.random() < chance * merit[place]
        )
        slots.add(shown(order, chances, f"u{number % 500}"), gains(useful, order))
    return slots


def test_on_shuffled_lists_a_position_is_worth_its_share_of_useful_ones() -> None:
    slots = ShuffledSlots()
    for number in range(1000):
        slots.add_shuffled([number < 400, number < 100])
    first, second = slots.estimate().rates
    assert (first.ratio, first.error, first.rate, second.rate) == (1.0, 0.0, 0.4, 0.1)
    assert second.ratio == pytest.approx(0.25)
    # by the delta method: Var(ln R2) + Var(ln R1) − 2 Cov, of a binomial pair where every second hit is a first one
    variance = (0.9 / 0.1 + 0.6 / 0.4 - 2 * (0.1 - 0.04) / 0.04) / 1000
    assert second.error == pytest.approx(0.25 * math.sqrt(variance), rel=1e-9)
    assert second.effective == pytest.approx(1000)


def test_ten_thousand_shuffled_lists_tell_a_position_to_five_percent() -> None:
    """The figure of the design: about ±5 % (95 %) where a third of the looked-at items is useful."""
    rng = np.random.default_rng(0)
    slots = ShuffledSlots()
    for useful in rng.random((10_000, 2)) < 0.33 * np.array([0.95, 0.7]):
        slots.add_shuffled(useful.tolist())
    rate = slots.estimate().rates[1]
    assert 0.03 < 1.96 * rate.error / rate.ratio < 0.07
    assert abs(rate.ratio - 0.7 / 0.95) < 3 * rate.error


@pytest.mark.parametrize("seed", range(3))
def test_lists_that_follow_merit_are_weighted_back_to_shuffled_ones(seed: int) -> None:
    """Unweighted, the second position looks worse than it is: it gets what is left."""
    theta, merit = (0.9, 0.6), (0.8, 0.5, 0.3, 0.2)
    rate = drawn_log(seed, 6000, theta, merit, 0.5).estimate().rates[1]
    assert abs(rate.ratio - theta[1] / theta[0]) < 3.5 * rate.error < 0.25


def test_too_little_exploration_is_refused_with_what_it_has() -> None:
    few = ShuffledSlots()
    for number in range(150):
        few.add_shuffled([number % 2, number % 3 == 0])
    with pytest.raises(PositionError, match="position 1 has an effective 150 shuffled slots of 200"):
        few.estimate()
    with pytest.raises(PositionError, match="no ranking has usable propensities"):
        ShuffledSlots().estimate()
    greedy = ShuffledSlots()
    for number in range(300):
        greedy.add_shuffled([number % 2, 0])
    with pytest.raises(PositionError, match="nothing at position 2 was useful"):
        greedy.estimate()


def test_positions_beyond_what_the_log_can_tell_take_the_last_one() -> None:
    slots = ShuffledSlots()
    for number in range(1000):
        slots.add_shuffled([number < 500, number < 250, number == 1])
    found = slots.estimate()
    assert [rate.position for rate in found.rates] == [1, 2]
    assert found.at([1, 2, 3, 9]).tolist() == pytest.approx([1.0, 0.5, 0.5, 0.5])


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (shown("ab", [0.5, 0.0]), "propensity_out_of_range"),
        (shown("ab", [0.5, 1.5]), "propensity_out_of_range"),
        (shown("ab", [0.5, math.nan]), "propensity_out_of_range"),
        (shown("ab", [0.5, None]), "propensity_missing"),
        (shown("ab", [0.5, 0.5], pool=None), "pool_unknown"),
        (shown("", []), "empty"),
        (shown("abcd", [1.0] * 4, pool=POOL[:2]), "positions_not_drawn"),
    ],
)
def test_a_ranking_whose_propensities_cannot_be_used_is_named_and_counted(event: RankingEvent, reason: str) -> None:
    slots = ShuffledSlots()
    assert not slots.add(event, {})
    assert slots.excluded == {reason: 1}


@pytest.mark.parametrize("wrong", [-1, 0, 1.5, math.nan, math.inf, 2.0**40])
def test_what_is_no_position_never_reaches_the_trees(wrong: float) -> None:
    with pytest.raises(PositionError, match="item 1 is not a whole number from 1 on"):
        position_ids([1, wrong])
    assert position_ids([1, 3]).tolist() == [0, 2]
    assert position_ids([]).tolist() == []


def propensities(*theta: float) -> Propensities:
    slots = ShuffledSlots()
    for number in range(10_000):
        slots.add_shuffled([number < 5000 * each for each in theta])
    return slots.estimate()


def test_useful_items_weigh_one_over_theta_and_what_clipping_takes_is_said() -> None:
    found = item_weights([1, 2, 3, 3], [2.0, 1.0, 1.0, 0.0], propensities(1.0, 0.5, 0.1), 5.0)
    assert found.weights.tolist() == pytest.approx([1.0, 2.0, 5.0, 1.0])
    assert found.clipped == pytest.approx(1 / 3)
    assert found.clipped_mass == pytest.approx((10.0 - 5.0) * 1.0 / 4)


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from([-1.0, 0.0, 1.0, 3.0])), min_size=1, max_size=20))
def test_weights_lie_between_one_and_the_clip(items: list[tuple[int, float]]) -> None:
    positions, worth = [place for place, _ in items], [gain for _, gain in items]
    found = item_weights(positions, worth, THETA, 4.0)
    assert ((found.weights >= 1.0 - 1e-12) & (found.weights <= 4.0)).all()
    assert (found.weights[np.array(worth) <= 0.0] == 1.0).all()
    assert found.clipped_mass >= 0.0


THETA = propensities(1.0, 0.5, 0.2)


def test_a_bias_per_position_recovers_what_the_naive_ranker_loses() -> None:
    found = bench_position(quick(PositionPlan()))
    of = {name: row["of_oracle"] for name, row in found["ways"].items()}
    assert of[MODEL] > of[NAIVE] + 0.015
    assert of["weights 1/θ"] > of[NAIVE] + 0.01
    assert of[MODEL] > of["position, regularisation 0.1"] > of[NAIVE]
    assert of[MODEL] > 0.975
    assert of[ORACLE] == 1.0
    for rate in found["theta"]:
        assert abs(rate["ratio"] - rate["true"]) < 4 * rate["error"] + 1e-9


@pytest.mark.slow
def test_twenty_thousand_lists_give_the_figures_of_the_design() -> None:
    ways = bench_position()["ways"]
    assert ways[MODEL]["of_oracle"] >= 0.99
    published = {
        NAIVE: 0.9595, MODEL: 0.9940, "position, regularisation 0.1": 0.9722, "weights 1/θ": 0.9880,
        "shuffled lists only": 0.9669, ORACLE: 0.9977,
    }  # fmt: skip
    for name, figure in published.items():
        assert ways[name]["true_ndcg"] == pytest.approx(figure, abs=0.015), name
    assert sorted(ways, key=lambda name: ways[name]["true_ndcg"]) == sorted(published, key=published.__getitem__)


def test_a_bench_without_exploration_says_what_it_could_not_estimate() -> None:
    plan = quick(PositionPlan(judged=10, rounds=5), slates=300)
    found = bench_position(replace(plan, judged=10, rounds=5, world=replace(plan.world, shuffled=0.01)))
    assert "not enough exploration" in found["theta_unknown"]
    assert "weights 1/θ" not in found["ways"]
