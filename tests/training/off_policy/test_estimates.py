"""The published figures, and what holds between the estimators of the table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.off_policy.small import slates
from training.off_policy.errors import OffPolicyError
from training.off_policy.estimate import estimate
from training.off_policy.slates import Slates
from training.off_policy.terms import Predicted
from training.off_policy.weights import WEIGHTS, clip, shown_for, shrink

ROWS = slates([[0.8], [0.25], [0.5], [0.2]], [[0.6], [0.4], [0.3], [0.9]], [[0.1], [0.2], [0.0], [1.0]])
LISTS = slates(
    [[0.5, 0.5], [0.5, 0.4]],
    [[0.8, 0.6], [0.4, 0.25]],
    [[1.0, 0.0], [0.0, 1.0]],
    logged_alone=[[0.5, 0.5], [0.5, 0.4]],
    target_alone=[[0.8, 0.6], [0.4, 0.25]],
)
EXPECTED = Predicted(
    logged=np.array([[0.6, 0.3], [0.2, 0.5]]), expected=np.array([[0.58, 0.36], [0.26, 0.375]]), direct=None
)


@pytest.mark.parametrize(("name", "value"), [("ips", 1.22375), ("snips", 0.6570469798657719)])
def test_four_rows_give_the_published_figures(name: str, value: float) -> None:
    assert estimate(name, ROWS, "r").value == pytest.approx(value, abs=1e-15)


@pytest.mark.parametrize(
    ("name", "value"), [("rips", 1.05), ("sips", 1.21), ("iips", 1.1125), ("cascade-dr", 0.935)], ids=str
)
def test_two_lists_of_two_give_the_published_figures(name: str, value: float) -> None:
    assert estimate(name, LISTS, "r", EXPECTED).value == pytest.approx(value, abs=1e-15)


def test_snips_of_rows_has_the_linearised_error_of_the_formula() -> None:
    w, r = np.array([0.75, 1.6, 0.6, 4.5]), np.array([0.1, 0.2, 0.0, 1.0])
    found = estimate("snips", ROWS, "r")
    error = np.sqrt(((w * (r - found.value)) ** 2).sum()) / w.sum()
    assert np.sqrt((found.influence**2).sum()) / 4 == pytest.approx(error, rel=1e-12)


def test_clipping_reports_the_mass_that_it_drops() -> None:
    found = estimate("clipped", ROWS, "r")
    assert found.limit == 2.0 and found.dropped == pytest.approx((4.5 - 2.0) * 1.0 / 4)
    assert found.value + (found.dropped or 0.0) == pytest.approx(estimate("ips", ROWS, "r").value)


def test_dr_by_hand() -> None:
    q = Predicted(np.array([[0.2], [0.1], [0.3], [0.6]]), np.array([[0.3], [0.2], [0.1], [0.5]]), None)
    w, r = np.array([0.75, 1.6, 0.6, 4.5]), np.array([0.1, 0.2, 0.0, 1.0])
    by_hand = np.mean(q.expected[:, 0] + w * (r - q.logged[:, 0]))
    shrunk = np.mean(q.expected[:, 0] + 4 * w / (w**2 + 4) * (r - q.logged[:, 0]))
    assert estimate("dr", ROWS, "r", q).value == pytest.approx(by_hand)
    assert estimate("dr-shrinkage", ROWS, "r", q).value == pytest.approx(shrunk)


def test_the_direct_method_takes_only_the_model() -> None:
    q = Predicted(np.zeros((2, 2)), np.zeros((2, 2)), np.array([[0.1, 0.2], [0.3, 0.4]]))
    assert estimate("dm", LISTS, "r", q).value == pytest.approx(0.5)


@given(st.integers(1, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_a_target_that_is_the_log_gets_what_the_log_got(slots: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    chances, rewards = rng.uniform(0.05, 1.0, (20, slots)), rng.normal(size=(20, slots))
    same = slates(chances.tolist(), chances.tolist(), rewards.tolist())
    q = Predicted(*[np.zeros((20, slots))] * 3)
    for name in shown_for(slots):
        if name in ("dm", "dr-shrinkage") or (name == "iips" and slots > 1):
            continue
        assert estimate(name, same, "r", q).value == pytest.approx(rewards.sum(axis=1).mean(), rel=1e-9)


def test_of_single_actions_the_list_estimators_are_those_of_rows() -> None:
    assert {estimate(name, ROWS, "r").value for name in ("ips", "sips", "iips", "rips")} == {
        estimate("ips", ROWS, "r").value
    }
    assert not {"sips", "iips", "rips", "cascade-dr"} & set(shown_for(1))
    assert not {"ips", "dr"} & set(shown_for(2))


def test_shrinking_never_passes_half_the_root_of_its_limit() -> None:
    w = np.linspace(0.0, 1e4, 1001)
    assert (shrink(w, 100.0) <= 5.0 + 1e-12).all()
    assert shrink(w, 1e30) == pytest.approx(w)
    assert (clip(w, 7.0) == np.minimum(w, 7.0)).all()


@pytest.mark.parametrize("name", list(WEIGHTS))
def test_without_a_slate_there_is_no_number(name: str) -> None:
    empty: Slates = ROWS.pick(np.zeros(4, np.bool_))
    with pytest.raises(OffPolicyError, match="no slate"):
        estimate(name, empty, "r", EXPECTED)


def test_what_is_not_known_is_said() -> None:
    unknown = slates([[0.5, 0.5]], [[0.5, 0.5]], [[1.0, 0.0]])
    with pytest.raises(OffPolicyError, match="whatever is above it"):
        estimate("iips", unknown, "r")
    with pytest.raises(OffPolicyError, match="whatever is above it"):
        estimate("dm", LISTS, "r", EXPECTED)
    with pytest.raises(OffPolicyError, match="needs the predictions"):
        estimate("cascade-dr", LISTS, "r")


def test_a_target_that_never_shows_what_was_logged_has_no_ratio() -> None:
    with pytest.raises(OffPolicyError, match="never shows"):
        estimate("snips", slates([[0.5]], [[0.0]], [[1.0]]), "r")


def test_below_a_list_that_the_target_never_shows_the_ratio_stays_zero() -> None:
    never = slates([[0.5, 0.5, 0.5]], [[0.0, 0.0, 0.7]], [[1.0, 1.0, 1.0]])
    assert (never.prefix == 0.0).all()
