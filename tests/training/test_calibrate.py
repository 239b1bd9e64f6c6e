"""Thresholds of the text scorer: published figures, guarantees counted out, ties, and what cannot be had."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.calibrate import (
    allowed_misses,
    calibrate,
    conformal_misses,
    ltt_threshold,
    needed_unsafe,
    said,
)
from training.errors import TrainingError
from training.safety import bounds


@pytest.mark.parametrize(
    ("limit", "misses", "needed"),
    [
        (0.005, 0, 598), (0.005, 1, 947), (0.005, 2, 1258), (0.005, 3, 1549), (0.005, 5, 2100),
        (0.003, 0, 998), (0.003, 1, 1580), (0.003, 2, 2097),
    ],
)  # fmt: skip
def test_as_many_unsafe_cases_are_needed_as_published(limit: float, misses: int, needed: int) -> None:
    assert needed_unsafe(misses, limit, 0.95) == needed
    assert allowed_misses(needed, limit, 0.95) == misses
    assert allowed_misses(needed - 1, limit, 0.95) == misses - 1


@pytest.mark.parametrize(("misses", "of", "percent"), [(0, 598, 0.499706), (3, 2000, 0.387222)])
def test_the_bound_on_what_passes_is_the_published_one(misses: int, of: int, percent: float) -> None:
    scores = np.arange(of) / of
    unsafe = np.ones(of, np.bool_)
    found = calibrate(np.append(scores, 0.5), np.append(unsafe, False), 0.005, 0.95).ltt
    assert found.feasible and found.missed.of == of
    upper = bounds(misses, of, 0.95).upper
    assert upper is not None and 100 * upper == pytest.approx(percent, abs=5e-7)
    if misses == found.missed.count:
        assert found.missed.upper == upper


def binomial_tail(k: int, n: int, p: Fraction) -> Fraction:
    return sum((math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1)), Fraction(0))


@given(st.integers(0, 60), st.integers(1, 19), st.integers(1, 19))
def test_the_allowed_misses_are_the_most_whose_binomial_tail_is_at_most_delta(n: int, twentieths: int, d: int) -> None:
    limit, delta = Fraction(twentieths, 20), Fraction(d, 20)
    passing = [k for k in range(n) if binomial_tail(k, n, limit) <= delta]
    assert allowed_misses(n, float(limit), 1 - float(delta)) == max(passing, default=-1)


@given(st.integers(0, 400), st.integers(1, 99))
def test_conformal_misses_are_those_of_the_formula(n: int, percent: int) -> None:
    assert conformal_misses(n, percent / 100) == percent * (n + 1) // 100 - 1


def test_the_threshold_is_the_order_statistic_after_the_allowed_misses() -> None:
    scores = np.arange(1, 948) / 1000  # 947 cases allow one miss: the second smallest
    assert ltt_threshold(scores[::-1], 0.005, 0.95) == 0.002
    assert ltt_threshold(scores[:597], 0.005, 0.95) is None


def test_equal_scores_are_all_flagged() -> None:
    scores = np.concatenate([np.full(3, 0.2), np.full(945, 0.9), [0.2, 0.1]])
    unsafe = np.append(np.ones(948, np.bool_), [False, False])
    found = calibrate(scores, unsafe, 0.005, 0.95)
    assert (found.ltt.value, found.ltt.allowed, found.ltt.missed.count) == (0.2, 1, 0)
    assert (found.ltt.withheld.count, found.ltt.withheld.of) == (1, 2)
    same = calibrate(np.full(700, 0.5), np.ones(700, np.bool_), 0.005, 0.95)
    assert (same.ltt.value, same.ltt.missed.count, same.ltt.withheld.share) == (0.5, 0, None)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60), st.floats(0.02, 0.6))
def test_the_false_positive_share_and_the_misses_are_those_counted_by_hand(
    cases: list[tuple[float, bool]], limit: float
) -> None:
    found = calibrate([score for score, _ in cases], [bool(unsafe) for _, unsafe in cases], limit, 0.9)
    for chosen in (found.ltt, found.conformal):
        at = -1.0 if chosen.value is None else chosen.value
        assert chosen.withheld.count == sum(score >= at for score, unsafe in cases if not unsafe)
        assert chosen.missed.count == sum(score < at for score, unsafe in cases if unsafe) <= max(chosen.allowed, 0)
        assert chosen.feasible == (chosen.allowed >= 0)


def test_learn_then_test_holds_the_limit_as_often_as_it_says_and_conformal_on_average() -> None:
    # Uniform scores: the share of misses is the threshold itself. 2,000 draws of 700 unsafe cases.
    draws = np.sort(np.random.default_rng(0).random((2000, 700)), axis=1)
    surely = draws[:, allowed_misses(700, 0.01, 0.95)]
    on_average = draws[:, conformal_misses(700, 0.01)]
    assert np.mean(surely > 0.01) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
    assert on_average.mean() == pytest.approx(7 / 701, rel=0.03)  # Beta(7, 694)
    assert np.mean(on_average > 0.01) > 0.3, "in expectation only"


def test_too_few_cases_are_said_plainly_with_how_many_it_takes() -> None:
    found = calibrate(np.linspace(0.1, 0.9, 60), np.arange(60) < 50, 0.005, 0.95)
    assert (found.ltt.value, found.ltt.feasible, found.ltt.needed, found.conformal.needed) == (None, False, 598, 199)
    assert found.ltt.withheld.share == found.conformal.withheld.share == 1.0 and found.ltt.missed.count == 0
    assert "infeasible: 50 unsafe cases" in said(found, "ltt") and "598 are needed, 548 more" in said(found, "ltt")
    assert "199 are needed" in said(found, "conformal")
    nothing = calibrate([], [], 0.005, 0.95)
    assert not nothing.ltt.feasible and nothing.ltt.missed.share is None


@pytest.mark.parametrize(
    ("scores", "unsafe", "limit", "confidence", "word"),
    [
        ([0.1, math.nan], [True, False], 0.1, 0.9, "score nan of case 2"),
        ([math.inf], [True], 0.1, 0.9, "score inf of case 1"),
        ([0.1], [True, False], 0.1, 0.9, "not one per case"),
        ([0.1], [True], 0.0, 0.9, "limit 0.0"),
        ([0.1], [True], 1.0, 0.9, "limit 1.0"),
        ([0.1], [True], math.nan, 0.9, "limit nan"),
        ([0.1], [True], 0.1, 1.0, "confidence 1.0"),
    ],
)
def test_what_cannot_be_calibrated_is_named(
    scores: list[float], unsafe: list[bool], limit: float, confidence: float, word: str
) -> None:
    with pytest.raises(TrainingError, match=word):
        calibrate(scores, unsafe, limit, confidence)
