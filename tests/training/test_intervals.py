"""Cluster bootstrap: the width that theory says, wider when clusters agree, narrower when pairs do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from training.intervals import interval, paired_interval


def test_independent_queries_give_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 4000)
    found = interval(values, np.arange(4000), seed=1)
    half = 1.959964 * values.std() / math.sqrt(4000)
    assert found.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.1 * half)
    assert (found.queries, found.clusters) == (4000, 4000)


def test_queries_that_agree_within_a_cluster_widen_the_interval_as_if_there_were_one_each() -> None:
    by_cluster = np.random.default_rng(0).normal(0.0, 1.0, 300)
    repeated, clusters = np.repeat(by_cluster, 10), np.repeat(np.arange(300), 10)
    clustered = interval(repeated, clusters, seed=1)
    single = interval(by_cluster, np.arange(300), seed=1)
    assert (clustered.low, clustered.high) == pytest.approx((single.low, single.high))


def test_clusters_of_unequal_size_give_the_linearised_ratio_interval() -> None:
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 12, 800)
    clusters = np.repeat(np.arange(800), sizes)
    values = rng.normal(0.0, 1.0, len(clusters)) + rng.normal(0.0, 1.0, 800)[clusters]
    residuals = np.bincount(clusters, values - values.mean())
    half = 1.959964 * math.sqrt(float((residuals**2).sum())) / len(values)
    found = interval(values, clusters, seed=3)
    assert found.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_about_95_of_100_intervals_cover_the_truth() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for trial in range(200):
        clusters = np.repeat(np.arange(60), 3)
        values = rng.normal(0.0, 1.0, 60)[clusters] + rng.normal(0.0, 1.0, 180)
        found = interval(values, clusters, seed=trial, draws=400)
        assert found.low is not None and found.high is not None
        covered += found.low <= 0.0 <= found.high
    assert 180 <= covered <= 200


def test_pairing_removes_what_both_share() -> None:
    rng = np.random.default_rng(0)
    hard = rng.normal(0.0, 5.0, 500)
    better, worse = hard + 0.1 + rng.normal(0, 0.1, 500), hard + rng.normal(0, 0.1, 500)
    found = paired_interval(better, worse, np.arange(500), seed=1)
    assert found.excludes_zero
    assert found.mean == pytest.approx(float((better - worse).mean()))


def test_equal_rankers_have_an_interval_of_zero() -> None:
    found = paired_interval([1.0, 0.0, 1.0], [1.0, 0.0, 1.0], ["a", "b", "b"], seed=1)
    assert (found.low, found.mean, found.high) == (0.0, 0.0, 0.0)
    assert not found.excludes_zero


def test_the_same_seed_gives_the_same_interval() -> None:
    values, clusters = np.random.default_rng(0).random(50), [f"u{number % 7}" for number in range(50)]
    assert interval(values, clusters, seed=4) == interval(values, clusters, seed=4)
    assert interval(values, clusters, seed=4) != interval(values, clusters, seed=5)


def test_fewer_than_two_clusters_have_no_bounds() -> None:
    one = interval([1.0, 2.0], ["a", "a"], seed=0)
    assert (one.mean, one.low, one.high) == (1.5, None, None)
    assert interval([], [], seed=0).mean is None


@pytest.mark.parametrize(
    ("values", "clusters", "draws", "level", "message"),
    [
        ([1.0], [], 10, 0.95, "1,"),
        ([math.nan], ["a"], 10, 0.95, r"values\[0\]"),
        ([1.0], ["a"], 0, 0.95, "draws 0"),
        ([1.0], ["a"], 10, 1.0, r"level 1\.0"),
    ],
)
def test_bad_input_is_named(values: list[float], clusters: list[str], draws: int, level: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        interval(values, clusters, seed=0, draws=draws, level=level)


def test_unpaired_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="not paired"):
        paired_interval([1.0], [1.0, 2.0], ["a"], seed=0)
