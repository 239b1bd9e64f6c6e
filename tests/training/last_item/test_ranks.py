"""Figures of one answer among all items, against the general metrics."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from training.last_item.ranks import Judged, exclude, figures, first, places
from training.last_item.sequences import from_lists
from training.metrics import hit_rate, ndcg, reciprocal_rank


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=30), st.data())
def test_figures_are_those_of_the_general_metrics_ties_included(levels: list[int], data: st.DataObject) -> None:
    answer = data.draw(st.integers(1, len(levels)))
    gains = np.zeros(len(levels))
    gains[answer - 1] = 1.0
    scores = np.array([[9.0, *levels]], np.float32)
    found = figures(*places(scores, np.array([answer], np.int32)))
    for k in (1, 3, 5, 10):
        assert found[f"hr@{k}"][0] == approx(hit_rate(levels, gains, k))
    for k in (5, 10):
        assert found[f"ndcg@{k}"][0] == approx(ndcg(levels, gains, k))
    assert found["mrr"][0] == approx(reciprocal_rank(levels, gains))


def test_an_unknown_or_excluded_answer_is_a_miss() -> None:
    scores = np.array([[0.0, 3.0, 2.0], [0.0, -np.inf, 2.0]], np.float32)
    found = figures(*places(scores, np.array([0, 1], np.int32)))
    assert all((values == 0.0).all() for values in found.values())


def test_nothing_of_a_history_is_ranked_once_it_is_excluded() -> None:
    scores = np.ones((2, 4), np.float32)
    exclude(scores, from_lists({"u": ["a", "b"], "v": ["c"]}).rows)
    assert np.isfinite(scores).tolist() == [[False, False, True, True], [True, True, False, True]]


def test_the_first_items_leave_out_what_is_excluded_and_the_nameless_column() -> None:
    scores = np.array([[9.0, 1.0, -np.inf, 3.0]], np.float32)
    assert set(first(scores, 10)[0].tolist()) == {0, 1, 3}
    assert set(first(scores, 1)[0].tolist()) == {3}


def test_what_was_shown_is_gathered_over_queries() -> None:
    judged = Judged()
    judged.add(np.array([[0.0, 1.0, 2.0]], np.float32), np.array([2], np.int32))
    judged.add(np.array([[0.0, 1.0, 2.0]], np.float32), np.array([1], np.int32))
    assert judged.array("hr@1").tolist() == [1.0, 0.0]
    assert judged.shown == {1, 2}
    assert judged.means()["mrr"] == 0.75
