"""Quality and cost together: better at no higher p99, or no worse and cheaper."""

from __future__ import annotations

from typing import Any

from ranker.release.gating import PRIORS
from training.gates.bounds import Bounds, p99_bounds, time_ratios
from training.gates.evidence import Evidence
from training.gates.finding import OK, Finding
from training.gates.settings import GateSettings
from training.intervals import Interval, interval

RULE = "quality_and_cost"


def quality_and_cost(evidence: Evidence, settings: GateSettings) -> Finding:
    """Ships if ΔNDCG's lower bound > 0 and the p99 ratio's upper bound is within its limit, or if NDCG is not worse
    than its margin and the cost ratio's upper bound < 1.

    Stops where quality is worse by more than its margin, or the p99 ratio's lower bound is beyond its limit. Against
    the priors, which cost next to nothing, the p99 itself is held to a limit.
    """
    quality = interval(
        evidence.quality.pair.difference, evidence.quality.clusters, settings.seed, settings.draws, settings.level
    )
    figures = _figures(evidence, quality)
    if quality.queries < settings.quality.min_queries or quality.low is None or quality.high is None:
        few = f"{quality.queries} queries to judge by, {settings.quality.min_queries} are needed"
        return Finding(RULE, "hold", "no_queries" if not quality.queries else "few_queries", few, figures)
    if quality.high < -settings.quality.margin:
        worse = f"NDCG {_shown(quality)} is worse by more than {settings.quality.margin:g}"
        return Finding(RULE, "stop", "quality_worse", worse, figures)
    requests = len(evidence.latency_ms.candidate)
    if requests < settings.cost.min_requests:
        few = f"{requests} requests were timed, {settings.cost.min_requests} are needed for a p99"
        return Finding(RULE, "hold", "few_requests", few, figures)
    if evidence.baseline == PRIORS:
        return _against_priors(evidence, settings, quality, figures)
    return _against_version(evidence, settings, quality, figures)


def _figures(evidence: Evidence, quality: Interval) -> dict[str, Any]:
    pair = evidence.quality.pair
    means = {} if not quality.queries else {
        "candidate": float(pair.candidate.mean()), "baseline": float(pair.baseline.mean())
    }  # fmt: skip
    return {
        "ndcg@10": {**means, "difference": quality.mean, "low": quality.low, "high": quality.high},
        "queries": quality.queries,
        "clusters": quality.clusters,
        "requests": len(evidence.latency_ms.candidate),
    }


def _against_version(evidence: Evidence, settings: GateSettings, quality: Interval, figures: dict[str, Any]) -> Finding:
    cost, times = settings.cost, evidence.latency_ms
    p99, mean = time_ratios(times.candidate, times.baseline, cost.block, settings.seed, settings.draws, settings.level)
    figures |= {"p99_ratio": _asdict(p99), "cost_ratio": _asdict(mean)}
    return _said(quality, p99, cost.max_p99_ratio, mean.high < 1.0, settings, figures, "p99 ratio")


def _against_priors(evidence: Evidence, settings: GateSettings, quality: Interval, figures: dict[str, Any]) -> Finding:
    cost = settings.cost
    p99 = p99_bounds(evidence.latency_ms.candidate, cost.block, settings.seed, settings.draws, settings.level)
    figures |= {"p99_ms": _asdict(p99)}
    return _said(quality, p99, cost.max_p99_ms, False, settings, figures, "p99 in ms")


def _said(
    quality: Interval,
    p99: Bounds,
    limit: float,
    cheaper: bool,
    settings: GateSettings,
    figures: dict[str, Any],
    what: str,
) -> Finding:
    assert quality.low is not None, "there are enough queries"
    told = f"NDCG {_shown(quality)}, {what} {p99.value:.3f} ({p99.low:.3f} … {p99.high:.3f})"
    if quality.low > 0.0 and p99.high <= limit:
        return Finding(RULE, "ship", OK, f"{told}: better, within {limit:g}", figures)
    if quality.low > -settings.quality.margin and cheaper:
        return Finding(RULE, "ship", OK, f"{told}: no worse, and cheaper", figures)
    if p99.low > limit:
        return Finding(RULE, "stop", "p99_regression", f"{told}: slower than {limit:g}", figures)
    if quality.low <= 0.0:
        return Finding(RULE, "hold", "no_gain", f"{told}: neither better nor cheaper for sure", figures)
    return Finding(
        RULE, "hold", "p99_unsure", f"{told}: the upper bound is over {limit:g}; time more requests", figures
    )


def _shown(found: Interval) -> str:
    return f"{found.mean:+.4f} ({found.low:+.4f} … {found.high:+.4f})"


def _asdict(found: Bounds) -> dict[str, float]:
    return {"value": found.value, "low": found.low, "high": found.high}
