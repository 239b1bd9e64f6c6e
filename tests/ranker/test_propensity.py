"""Plackett–Luce: closed forms, enumeration of all orders, and draws that come out as often as they should."""

from __future__ import annotations

import itertools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ranker.propensity import Exploration, agreement, draw_order, slot_propensities

scores = st.lists(st.floats(-4.0, 4.0), min_size=1, max_size=5)


def chance_by_products(weights: list[float], order: tuple[int, ...]) -> float:
    """Π w / Σ of what is left, by hand."""
    return math.prod(weights[row] / sum(weights[left] for left in order[slot:]) for slot, row in enumerate(order))


def chance_of_prefix(weights: list[float], greedy: tuple[int, ...], prefix: tuple[int, ...], epsilon: float) -> float:
    """Sum over all orders that begin with the prefix."""
    drawn = sum(
        chance_by_products(weights, order)
        for order in itertools.permutations(range(len(weights)))
        if order[: len(prefix)] == prefix
    )
    return epsilon * drawn + (1.0 - epsilon) * (greedy[: len(prefix)] == prefix)


def shown(values: list[float], order: tuple[int, ...], epsilon: float, temperature: float = 1.0) -> list[float]:
    exploration = Exploration(epsilon, temperature)
    greedy = tuple(sorted(range(len(values)), key=lambda row: -values[row]))
    utilities = exploration.utilities(np.array(values)[list(order)])
    chances = slot_propensities(utilities, agreement(order, greedy), epsilon, len(order))
    return [float(chance) for chance in chances]


def test_weights_three_two_one() -> None:
    logs = [math.log(3), math.log(2), math.log(1)]
    first, second, third = shown(logs, (0, 1, 2), epsilon=1.0)
    assert first * second == pytest.approx(1 / 3)
    assert third == 1.0
    at_second = sum(math.prod(shown(logs, order, 1.0)[:2]) for order in ((0, 1, 2), (2, 1, 0)))
    assert at_second == pytest.approx(0.4)


@settings(max_examples=60, deadline=None)
@given(scores, st.just(0.0) | st.floats(1e-9, 1.0), st.floats(0.2, 5.0), st.randoms())
def test_slots_are_ratios_of_enumerated_prefixes(
    values: list[float], epsilon: float, temperature: float, random: Random
) -> None:
    weights = [math.exp(value / temperature) for value in values]
    greedy = tuple(sorted(range(len(values)), key=lambda row: -values[row]))
    order = greedy if epsilon == 0.0 else tuple(random.sample(range(len(values)), len(values)))
    above = 1.0
    for slot, propensity in enumerate(shown(values, order, epsilon, temperature)):
        to_here = chance_of_prefix(weights, greedy, order[: slot + 1], epsilon)
        assert propensity == pytest.approx(to_here / above, rel=1e-9)
        above = to_here


def test_deleting_from_a_drawn_order_leaves_a_plackett_luce_order() -> None:
    """The law of what is shown after a deletion, by enumeration, is the law over the survivors."""
    weights, epsilon, deleted = [5.0, 3.0, 2.0, 1.0], 0.3, 1
    greedy = (0, 1, 2, 3)
    law: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(4)):
        chance = epsilon * chance_by_products(weights, order) + (1 - epsilon) * (order == greedy)
        left = tuple(row for row in order if row != deleted)
        law[left] = law.get(left, 0.0) + chance
    values = [math.log(weights[row]) for row in (0, 2, 3)]
    for left, chance in law.items():
        order = tuple((0, 2, 3).index(row) for row in left)
        assert math.prod(shown(values, order, epsilon)) == pytest.approx(chance)


def test_nothing_is_lost_to_cancellation_at_the_end_of_a_long_list() -> None:
    """The last two of a thousand have a millionth of the weight above them, and still a chance of a half each."""
    values = [0.0] * 998 + [-60.0, -60.0]
    assert shown(values, tuple(range(1000)), 1.0)[-2:] == [pytest.approx(0.5), 1.0]


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30), st.floats(0.0, 1.0), st.floats(0.001, 1000.0))
def test_propensities_stay_within_zero_and_one_whatever_the_scores(
    values: list[float], epsilon: float, temperature: float
) -> None:
    order = tuple(draw_order(Exploration(epsilon, temperature).utilities(np.array(values)), 1))
    if epsilon > 0.0:
        assert all(0.0 < chance <= 1.0 for chance in shown(values, order, epsilon, temperature))


def test_draws_come_out_as_often_as_they_should() -> None:
    values, draws = [1.0, 0.5, 0.0, -1.0], 20_000
    utilities = Exploration(1.0, 0.8).utilities(np.array(values))
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(draws):
        order = tuple(draw_order(utilities, seed))
        counts[order] = counts.get(order, 0) + 1
    orders = list(itertools.permutations(range(4)))
    expected = [draws * math.prod(shown(values, order, 1.0, 0.8)) for order in orders]
    assert stats.chisquare([counts.get(order, 0) for order in orders], expected).pvalue > 0.001


def test_a_seed_draws_the_same_order_as_it_always_did() -> None:
    """Pinned: an order that changed with a version of numpy would make old ids draw anew."""
    assert draw_order(np.zeros(8), 12345) == [2, 3, 6, 4, 5, 1, 0, 7]
