"""Exact probabilities of the draw, against all orders by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranker.propensity import Exploration, agreement, slot_propensities
from training.off_policy.plackett_luce import drawn_in_slots, given_above, in_slots
from training.off_policy.slates import Floats


def by_all_orders(utilities: Floats, slots: int) -> Floats:
    chances = np.zeros((slots, len(utilities)))
    weights = np.exp(utilities - utilities.max())
    for order in itertools.permutations(range(len(utilities)), slots):
        left, chance = set(range(len(utilities))), 1.0
        for item in order:
            chance *= weights[item] / sum(weights[other] for other in left)
            left.remove(item)
        chances[range(slots), order] += chance
    return chances


def test_three_weights_give_the_published_figure() -> None:
    found = drawn_in_slots(np.log([3.0, 2.0, 1.0]), 2)
    assert found[1, 1] == pytest.approx(0.4, abs=1e-12)
    exploration = Exploration(1.0)
    given_a = given_above(np.log([3.0, 2.0, 1.0]), [0, 1], [0, 1, 2], exploration)
    assert given_a[0, 0] * given_a[1, 1] == pytest.approx(1 / 3, abs=1e-15)


@given(st.lists(st.floats(-40.0, 40.0), min_size=1, max_size=6), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_each_slot_alone_is_the_sum_over_all_orders(utilities: list[float], slots: int) -> None:
    slots = min(slots, len(utilities))
    values = np.array(utilities)
    assert drawn_in_slots(values, slots) == pytest.approx(by_all_orders(values, slots), abs=1e-10)


def test_a_draw_that_is_all_but_certain_is_still_in_order() -> None:
    found = drawn_in_slots(np.array([0.0, -100.0, -200.0, -300.0]), 3)
    assert found == pytest.approx(np.eye(3, 4), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shown", [(0, 1, 2), (0, 3, 1), (4, 0, 1)], ids=str)
def test_given_the_list_above_a_slot_is_the_logged_propensity(epsilon: float, shown: tuple[int, ...]) -> None:
    scores, greedy = np.array([2.0, 1.0, 0.5, 0.2, -1.0]), [0, 1, 2, 3, 4]
    exploration = Exploration(epsilon, 0.7)
    found = given_above(scores, shown, greedy, exploration)
    if epsilon > 0.0:
        assert found.sum(axis=1) == pytest.approx(np.ones(3))
        order = [*shown, *(row for row in greedy if row not in shown)]
        utilities = exploration.utilities(scores)[order]
        logged = slot_propensities(utilities, agreement(shown, greedy[:3]), epsilon, 3)
        assert found[range(3), shown] == pytest.approx(logged, rel=1e-12)
    else:
        agreeing = agreement(shown, greedy[:3])
        assert (found[range(3), shown][: agreeing + 1] == (np.array(shown) == greedy[:3])[: agreeing + 1]).all()


def test_the_mixture_alone_is_the_average_of_its_branches() -> None:
    scores, greedy = np.array([0.1, 0.4, 0.3]), [1, 2, 0]
    found = in_slots(scores, 2, greedy, Exploration(0.25))
    drawn = by_all_orders(scores, 2)
    fixed = np.zeros((2, 3))
    fixed[[0, 1], [1, 2]] = 1.0
    assert found == pytest.approx(0.25 * drawn + 0.75 * fixed, abs=1e-12)
