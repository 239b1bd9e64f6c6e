"""Every slice against its margin.

A slice stops a version when its upper bound is below 0 at α/S, S slices being judged (Bonferroni). A version ships
only when in every slice the lower bound is above its margin (intersection–union: no correction): what is too thin
to show that holds, it does not pass. A slice under a least share of the queries is named and not judged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from training.gates.bounds import mean_bounds
from training.gates.evidence import Evidence
from training.gates.finding import OK, Finding
from training.gates.settings import GateSettings, SliceSettings

RULE = "slices"
MAX_NAMED = 5


def slices(evidence: Evidence, settings: GateSettings) -> Finding:
    """Stops with `slice_regression`; holds with `slice_thin` or `slice_unsure`, or where the whole log is thin."""
    judged, least = evidence.quality, settings.slices.min_share * len(evidence.quality.clusters)
    sizes = {name: len(rows) for name, rows in judged.slices.items()}
    large = sorted(name for name, size in sizes.items() if size >= max(least, 1))
    if len(judged.clusters) < settings.quality.min_queries:
        few = f"{len(judged.clusters)} queries are too few for slices of them"
        return Finding(RULE, "hold", "few_queries", few, {"slices": {}, "not_judged": len(sizes)})
    if not large:
        return Finding(RULE, "hold", "no_slices", "no slice to judge", {"slices": {}, "not_judged": len(sizes)})
    found = {name: _figures(evidence, name, len(large), settings) for name in large}
    figures = {"slices": found, "alpha_each": settings.slices.alpha / len(large), "not_judged": len(sizes) - len(large)}
    for code, verdict, text in (
        ("slice_regression", "stop", "loses"),
        ("slice_thin", "hold", "is too thin"),
        ("slice_unsure", "hold", "cannot be shown to lose less than its margin"),
    ):
        named = [name for name, each in found.items() if each["state"] == code]
        if named:
            return Finding(RULE, verdict, code, _told(named, found, text), figures)  # type: ignore[arg-type]
    return Finding(RULE, "ship", OK, f"none of {len(large)} slices loses more than its margin", figures)


def _figures(evidence: Evidence, name: str, count: int, settings: GateSettings) -> dict[str, Any]:
    rows, limits = evidence.quality.slices[name], settings.slices
    values, clusters = evidence.quality.pair.difference[rows], evidence.quality.clusters[rows]
    groups, margin = len(np.unique(clusters)), _margin(len(rows) / len(evidence.quality.clusters), limits)
    found = {"queries": len(rows), "clusters": groups, "difference": float(values.mean()), "margin": margin}
    if groups < limits.thin:
        return {**found, "low": None, "high": None, "state": "slice_thin"}
    bounds = mean_bounds(values, clusters, 1.0 - settings.level, limits.alpha / count)
    state = "slice_regression" if bounds.high < 0.0 else OK if bounds.low > -margin else "slice_unsure"
    return {**found, "low": bounds.low, "high": bounds.high, "state": state}


def _margin(share: float, limits: SliceSettings) -> float:
    return limits.small_margin if share <= limits.small_share else limits.margin


def _told(named: list[str], found: dict[str, dict[str, Any]], text: str) -> str:
    worst = sorted(named, key=lambda name: found[name]["difference"])[:MAX_NAMED]
    each = ", ".join(f"{name} ({found[name]['difference']:+.4f}, {found[name]['queries']} queries)" for name in worst)
    return f"{each}{' and others' if len(named) > MAX_NAMED else ''}: {text}"
