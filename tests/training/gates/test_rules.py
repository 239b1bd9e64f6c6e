"""Rules of the ship gate, each by what makes it ship, stop and hold; and how often the whole list errs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from ranker.release.gating import PRIORS
from tests.training.gates.made import (
    DAY_S,
    GIB,
    QUERIES,
    evidence,
    facts,
    latency,
    offers,
    outcomes,
    quality,
)
from training.gates.bounds import mean_bounds, time_ratios
from training.gates.evidence import (
    CLICKS,
    COMPLETIONS,
    DISMISSALS,
    REUSE,
    Effect,
    Evidence,
    Judged,
    MemoryEvidence,
    OutcomeEvidence,
    Pair,
    SafetyEvidence,
    no_offers,
    nothing_judged,
)
from training.gates.finding import Finding, reasons_of, verdict_of
from training.gates.rules import RULES, find_all
from training.gates.settings import GateSettings

SETTINGS = GateSettings(draws=400)
FAST = GateSettings(draws=100)
RUNS = 100

CASES: Mapping[str, tuple[Evidence, str, str]] = {
    "better and as fast": (evidence(), "ship", ""),
    "no worse and cheaper": (
        evidence(quality=quality(0, noise=0.01), latency_ms=latency(0, factor=0.7)), "ship", ""),
    "better and 30 % slower": (evidence(latency_ms=latency(0, factor=1.3)), "stop", "p99_regression"),
    "better, and too few requests timed": (evidence(latency_ms=latency(0, requests=100)), "hold", "few_requests"),
    "worse": (evidence(quality=quality(0, gain=-0.05)), "stop", "quality_worse"),
    "the same and as fast": (
        evidence(quality=quality(0, noise=0.01), latency_ms=latency(0)), "hold", "no_gain"),
    "no query": (evidence(quality=nothing_judged()), "hold", "no_queries"),
    "a few queries": (evidence(quality=quality(0, gain=0.05, queries=60)), "hold", "few_queries"),
    "hurt in one slice of 5 %": (evidence(quality=quality(0, gain=0.05, hurt=0.2)), "stop", "slice_regression"),
    "more clicks that come to nothing": (
        evidence(outcomes=outcomes(0, **{CLICKS: 0.05, COMPLETIONS: -0.05})), "stop", "ctr_up_completions_down"),
    "more clicks and more dismissals": (
        evidence(outcomes=outcomes(0, **{CLICKS: 0.05, DISMISSALS: 0.05})), "stop", "ctr_up_dismissals_up"),
    "more clicks and less reuse": (
        evidence(outcomes=outcomes(0, **{CLICKS: 0.05, REUSE: -0.05})), "stop", "ctr_up_reuse_down"),
    "fewer completions without more clicks": (
        evidence(outcomes=outcomes(0, **{COMPLETIONS: -0.05})), "ship", ""),
    "no completion in the log": (evidence(outcomes=OutcomeEvidence()), "hold", "no_outcomes"),
    "scores that mean something else later": (evidence(offers=offers(0, shifted=2.0)), "stop", "calibration_error"),
    "no offer": (evidence(offers=no_offers()), "hold", "few_offers"),
    "nothing known of safety": (evidence(safety=None), "hold", "safety_unknown"),
    "a scorer without labelled texts": (evidence(safety=SafetyEvidence(True)), "hold", "misses_unknown"),
    "a scorer that misses nothing of 598": (evidence(safety=SafetyEvidence(True, 0, 598)), "ship", ""),
    "a scorer that misses nothing of 597": (evidence(safety=SafetyEvidence(True, 0, 597)), "hold", "misses_unsure"),
    "a scorer that misses 3 in a hundred": (evidence(safety=SafetyEvidence(True, 30, 1000)), "stop", "safety_misses"),
    "memory over its share": (evidence(memory=MemoryEvidence(7 * GIB, 8 * GIB)), "stop", "memory_share"),
    "memory unknown": (evidence(memory=MemoryEvidence(GIB, None)), "hold", "memory_unknown"),
    "another schema": (evidence(facts=facts(schema="t")), "stop", "schema_mismatch"),
    "training data unknown": (evidence(facts=facts(since_s=None)), "hold", "span_unknown"),
    "training data too short": (evidence(facts=facts(since_s=9.5 * DAY_S)), "hold", "span_short"),
    "training data too old": (evidence(until_s=60 * DAY_S), "hold", "training_stale"),
    "judged by what it learned from": (evidence(since_s=9 * DAY_S), "hold", "judged_by_training"),
    "within its time, against the priors": (
        evidence(baseline=PRIORS, latency_ms=latency(0, factor=3.0)), "ship", ""),
    "beyond its time, against the priors": (
        evidence(baseline=PRIORS, latency_ms=latency(0, factor=100.0)), "stop", "p99_regression"),
}  # fmt: skip


@pytest.mark.parametrize(("found", "verdict", "reason"), CASES.values(), ids=CASES)
def test_each_reason_is_given_for_what_it_names(found: Evidence, verdict: str, reason: str) -> None:
    findings = find_all(found, SETTINGS)
    reasons = reasons_of(findings)
    assert (verdict_of(findings), reason in reasons or not reason) == (verdict, True), reasons
    assert len(findings) == len(RULES)


def test_a_stop_goes_before_a_hold_and_nothing_found_holds() -> None:
    ship, stop, hold = (Finding(name, name, name, "") for name in ("ship", "stop", "hold"))
    assert verdict_of([ship, hold, stop]) == "stop"
    assert verdict_of([ship, hold]) == "hold"
    assert verdict_of([ship]) == "ship"
    assert verdict_of([]) == "hold"
    assert reasons_of([hold, ship, stop]) == ["stop", "hold"]


def test_two_identical_versions_are_stopped_in_at_most_5_of_100_runs() -> None:
    def stopped(seed: int) -> bool:
        twin = evidence(seed, quality=quality(seed), latency_ms=latency(seed))
        return verdict_of(find_all(twin, FAST)) == "stop"

    assert sum(map(stopped, range(RUNS))) <= 5


def test_a_version_hurt_in_one_slice_of_5_percent_is_stopped_in_at_least_95_of_100_runs() -> None:
    def stopped(seed: int) -> bool:
        hurt = evidence(seed, quality=quality(seed, gain=0.01, hurt=0.15), latency_ms=latency(seed))
        return "slice_regression" in reasons_of(find_all(hurt, FAST))

    assert sum(map(stopped, range(RUNS))) >= 95


def test_a_thin_slice_holds_and_a_tiny_one_is_only_named() -> None:
    judged = quality(1, gain=0.1)
    rows = {**judged.slices, "locale=xx": np.arange(45), "locale=yy": np.arange(7)}
    few = np.where(np.arange(QUERIES) < 45, 1_000_000, judged.clusters)
    found = find_all(evidence(1, quality=Judged(judged.pair, few, rows)), SETTINGS)[3]
    assert (found.verdict, found.code, found.figures["not_judged"]) == ("hold", "slice_thin", 1)
    assert "locale=xx" in found.detail


def test_a_log_without_slices_holds() -> None:
    judged = quality(1, gain=0.1)
    found = find_all(evidence(1, quality=Judged(judged.pair, judged.clusters, {})), SETTINGS)[3]
    assert (found.verdict, found.code) == ("hold", "no_slices")


def test_off_policy_effects_go_before_labels() -> None:
    by_labels = outcomes(0)
    effects = {CLICKS: Effect(0.1, 0.05, 0.15), COMPLETIONS: Effect(-0.1, -0.15, -0.05)}
    found = OutcomeEvidence(by_labels.weighed, by_labels.positives, effects)
    assert "ctr_up_completions_down" in reasons_of(find_all(evidence(outcomes=found), SETTINGS))


def test_the_bounds_of_a_mean_are_students() -> None:
    # 2, 4, 4, 6 by cluster: mean 4, standard error √(8/3)/2; t(3) at .95 is 2.3533634
    bounds = mean_bounds(np.array([2.0, 4.0, 4.0, 6.0]), np.arange(4), 0.05, 0.05)
    reach = 2.3533634348 * np.sqrt(8.0 / 3.0) / 2.0
    assert (bounds.low, bounds.high) == pytest.approx((4.0 - reach, 4.0 + reach))


def test_the_ratio_of_a_version_to_itself_is_exactly_one() -> None:
    times = latency(3).candidate
    p99, mean = time_ratios(times, times.copy(), 25, 0, 200, 0.95)
    assert (p99.low, p99.value, p99.high) == (mean.low, mean.value, mean.high) == (1.0, 1.0, 1.0)


def test_what_slows_both_at_once_does_not_move_the_ratio() -> None:
    pair = latency(4)
    slow = np.repeat(np.random.default_rng(0).choice([1.0, 3.0], 40), 100)
    p99, _ = time_ratios(slow * pair.baseline * 1.02, slow * pair.baseline, 25, 0, 200, 0.95)
    assert (p99.low, p99.high) == pytest.approx((1.02, 1.02))
    assert isinstance(pair, Pair)
