"""Intervals by user: linearised, and the bootstrap of the ratio."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.off_policy.small import slates
from training.intervals import clustered_se, resampled_ratios
from training.off_policy.estimate import Estimate, estimate
from training.off_policy.spread import spread


def test_the_clustered_error_is_that_of_the_cluster_sums() -> None:
    rng = np.random.default_rng(0)
    influence, users = rng.normal(size=300), rng.integers(0, 40, 300)
    sums = np.array([influence[users == user].sum() for user in np.unique(users)])
    by_hand = np.sqrt((sums**2).sum()) / 300
    assert clustered_se(influence, users, small=False) == pytest.approx(by_hand)
    assert clustered_se(influence, users) == pytest.approx(by_hand * np.sqrt(len(sums) / (len(sums) - 1)))


def test_one_cluster_has_no_error_that_could_be_known() -> None:
    assert clustered_se([1.0, -1.0], [7, 7]) == float("inf")


def test_the_bootstrap_resamples_the_ratio_and_not_its_numerator() -> None:
    # Numerator and denominator move together: the ratio is certain, however uncertain either is.
    w = np.random.default_rng(1).exponential(size=(500, 1))
    ratios = resampled_ratios(2.0 * w, w, np.arange(500), 0, 200)
    assert ratios == pytest.approx(np.full((200, 1), 2.0))


def test_bootstrapped_ratios_are_those_of_drawn_clusters_by_hand() -> None:
    above, below = np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [1.0], [2.0]])
    users = np.array(["a", "a", "b"])
    found = set(np.round(resampled_ratios(above, below, users, 3, 200)[:, 0], 12))
    # Two users are drawn out of {a: 3 / 2, b: 4 / 2}: aa, ab or bb.
    assert found == {1.5, round(7 / 4, 12), 2.0}


def test_both_intervals_agree_on_many_users() -> None:
    rng = np.random.default_rng(2)
    chances = rng.uniform(0.2, 0.8, (4000, 1))
    rows = slates(chances.tolist(), [[0.5]] * 4000, (rng.random((4000, 1)) < 0.3).astype(float).tolist())
    found = spread({name: estimate(name, rows, "r") for name in ("ips", "snips")}, rows.users)
    for shown in found.values():
        assert shown.low is not None and shown.high is not None and shown.bootstrap is not None
        width = shown.high - shown.low
        assert shown.bootstrap == pytest.approx((shown.low, shown.high), abs=0.1 * width)


def test_the_direct_method_gets_no_interval() -> None:
    found = spread({"dm": Estimate(0.3, np.zeros(9), np.ones((9, 1)), np.ones((9, 1)))}, np.arange(9))
    assert (found["dm"].value, found["dm"].se, found["dm"].low, found["dm"].bootstrap) == (0.3, None, None, None)


def test_more_rows_of_the_same_users_do_not_narrow_the_interval() -> None:
    rng = np.random.default_rng(3)
    rewards = (rng.random((100, 1)) < 0.5).astype(float)
    once = slates([[0.5]] * 100, [[0.5]] * 100, rewards.tolist())
    users = np.repeat(range(100), 9).tolist()
    often = slates([[0.5]] * 900, [[0.5]] * 900, np.repeat(rewards, 9, axis=0).tolist(), users)
    assert spread({"ips": estimate("ips", often, "r")}, often.users)["ips"].se == pytest.approx(
        spread({"ips": estimate("ips", once, "r")}, once.users)["ips"].se or 0.0
    )
