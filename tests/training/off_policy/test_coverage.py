"""Intervals cover the truth of a simulated log about as often as they say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import binom

from training.off_policy.coverage import CoveragePlan, bench_coverage
from training.off_policy.simulated import draw_visits, in_slots_of, world

RUNS = 200


def test_each_interval_covers_the_truth_in_all_but_a_twentieth_of_the_runs() -> None:
    report = bench_coverage(CoveragePlan(RUNS, draws=200))
    # Of 2 × 12 shares none should be this far off by chance: 1 in 10,000 each.
    low, high = binom.ppf([1e-4, 1 - 1e-4], RUNS, 0.95) / RUNS
    for slots in report["slots"].values():
        for name, found in slots["estimators"].items():
            assert found["shown"] >= 0.99 * RUNS
            if name == "dm":
                assert found["coverage"] is None
                continue
            assert low <= found["coverage"] <= high and low <= found["bootstrap_coverage"] <= high, (name, found)
    assert list(report["slots"]["1"]["estimators"]) == ["ips", "snips", "clipped", "dm", "dr", "dr-shrinkage"]


def test_the_truth_is_what_the_target_gets_when_it_writes_the_log_itself() -> None:
    place = world(3, 2)
    own = type(place)(place.target, place.target, place.rates, users=4_000, taste=0.0)
    visits = draw_visits(own, 0)
    got = visits.slates.rewards["usefulness"].sum(axis=1)
    assert abs(got.mean() - place.truth()) < 4 * got.std() / np.sqrt(len(got))
    assert visits.slates.prefix == pytest.approx(np.ones((len(got), 2)))


def test_chances_of_slots_are_sums_over_lists() -> None:
    utilities = np.array([[0.3, -0.2, 0.9]])
    weights = np.exp(utilities[0])
    by_hand = np.zeros((2, 3))
    for first, second in itertools.permutations(range(3), 2):
        chance = weights[first] / weights.sum() * weights[second] / (weights.sum() - weights[first])
        by_hand[0, first] += chance
        by_hand[1, second] += chance
    assert in_slots_of(utilities, 2)[0] == pytest.approx(by_hand)
