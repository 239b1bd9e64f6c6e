"""Agreement, drift and pace, against closed forms and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from training.replaying.agreement import kendall_tau, overlap_at
from training.replaying.drift import FrozenBins, drift, kl, psi, shares
from training.replaying.pace import Pace


def test_kl_and_psi_are_the_published_figures() -> None:
    assert kl((0.5, 0.5), (0.3, 0.7)) == pytest.approx(0.08717669, abs=1e-8)
    assert psi((0.5, 0.5), (0.3, 0.7)) == pytest.approx(0.16945957, abs=1e-8)


def test_shares_are_smoothed_by_half_a_count() -> None:
    assert shares(np.array([3.0, 0.0])).tolist() == [3.5 / 4.0, 0.5 / 4.0]


@given(st.integers(2, 12).flatmap(lambda n: st.tuples(*[st.lists(st.integers(-3, 3), min_size=n, max_size=n)] * 2)))
def test_kendall_tau_is_scipys(pair: tuple[list[int], list[int]]) -> None:
    ours, theirs = kendall_tau(*pair), float(kendalltau(*pair).statistic)
    assert (ours is None and math.isnan(theirs)) or ours == pytest.approx(theirs, abs=1e-12)


def test_overlap_is_of_the_first_lists_length() -> None:
    first, second = [("a", None), ("b", "x"), ("c", None)], [("b", None), ("a", None), ("c", None)]
    assert overlap_at(first, second, 3) == pytest.approx(2 / 3)
    assert overlap_at(first, second, 1) == 0.0
    assert overlap_at([], second, 3) is None


def test_the_same_column_has_no_drift_and_a_moved_one_has() -> None:
    values = np.random.default_rng(0).standard_normal(5000)
    assert drift(values, values).kl == pytest.approx(0.0, abs=1e-12)
    moved = drift(values, values + 1.0)
    assert moved.kl is not None and moved.kl > 0.3 and moved.psi is not None and moved.psi > moved.kl
    assert moved.unknown > 0.0


def test_missing_and_unknown_have_bins_of_their_own() -> None:
    frozen = FrozenBins.of([1.0, 2.0, 3.0, 4.0], bins=2)
    assert frozen.count([0.0, 1.0, 4.0, 5.0, math.nan, math.inf]).tolist() == [1.0, 1.0, 1.0 + 1.0, 2.0]


def test_a_constant_column_is_remarked_and_one_that_vanished_too() -> None:
    assert drift(np.ones(50), np.ones(50)).note == "constant"
    found = drift(np.arange(50.0), np.full(50, math.nan))
    assert (found.note, found.missing) == ("all_missing", 1.0)
    assert drift([], []).kl is None


def test_a_pace_keeps_the_logs_gaps_so_many_times_faster() -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(10.0, clock=lambda: now[0], sleep=sleep)
    assert [pace.wait(at) for at in (5000.0, 5020.0, 5010.0)] == pytest.approx([0.0, 0.0, 1000.0])
    assert slept == pytest.approx([2.0])
    now[0] += 7.0
    assert pace.wait(5030.0) == pytest.approx(6000.0)  # due at 103, asked at 109


def test_at_most_speed_nothing_waits() -> None:
    pace = Pace(math.inf, clock=lambda: 0.0, sleep=lambda _: pytest.fail("waited"))
    assert [pace.wait(at) for at in (0.0, 1e9)] == [0.0, 0.0]
