"""One order of what the second stage ranked and what it was not asked about."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ranker.second.order import one_order, passed_on


def test_the_best_by_light_are_passed_on_in_their_own_order_and_ties_go_to_the_earlier() -> None:
    assert passed_on(np.array([1.0, 3.0, 2.0, 3.0]), 2).tolist() == [1, 3]
    assert passed_on(np.array([1.0, 1.0, 1.0]), 2).tolist() == [0, 1]
    assert passed_on(np.array([1.0]), 50).tolist() == [0]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.integers(1, 30), st.randoms(use_true_random=False))
def test_the_rest_stays_below_in_the_order_of_the_light_stage(light: list[float], most: int, random: object) -> None:
    values = np.array(light)
    rows = passed_on(values, most)
    scores = np.array([random.uniform(-9, 9) for _ in rows])  # type: ignore[attr-defined]
    found = one_order(values, rows, scores)
    rest = np.setdiff1d(np.arange(len(values)), rows)
    assert found[rows].tolist() == scores.tolist()
    if len(rest):
        assert found[rest].max() < scores.min()
        order = np.argsort(-found[rest], kind="stable")
        assert (np.diff(values[rest][order]) <= 1e-9).all()
