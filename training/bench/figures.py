"""What runs of the load say: percentiles, goodput, ratios with their spread, exponents of growth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from training.bench.load import Report


class Spread(msgspec.Struct, frozen=True):
    """A figure over interleaved rounds: the median, and the least and most of them."""

    median: float
    least: float
    most: float


class Latencies(msgspec.Struct, frozen=True):
    """One open-loop run, or the middle of several; `goodput` is answers with 200 within the deadline, per second."""

    rate: float
    answered: float
    goodput: float
    p50_ms: float
    p99_ms: float
    statuses: dict[str, int]
    degraded: dict[str, int]
    sent_late_p99_ms: float
    lost: int


_NUMBERS = ("rate", "answered", "goodput", "p50_ms", "p99_ms", "sent_late_p99_ms")
_COUNTS = ("statuses", "degraded")


class Growth(msgspec.Struct, frozen=True):
    """How cost grows: (n, ms of CPU per ranking), and the exponent of a power law through them."""

    points: list[tuple[int, float]]
    exponent: float


def spread(values: Sequence[float]) -> Spread:
    """Over rounds."""
    return Spread(percentile(values, 0.5), min(values), max(values))


def ratio(values: Sequence[float], base: Sequence[float]) -> Spread:
    """Of interleaved rounds, each to its own."""
    return spread([value / max(other, 1e-9) for value, other in zip(values, base, strict=True)])


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share does not exceed; NaN of none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def latencies(report: Report, rate: float, seconds: float, deadline_ms: float) -> Latencies:
    """Figures of an open-loop run of `seconds`."""
    took_ms = [latency * 1000.0 for latency in report.latencies_s]
    return Latencies(
        rate=rate,
        answered=len(took_ms) / seconds,
        goodput=sum(ms <= deadline_ms for ms in took_ms) / seconds,
        p50_ms=percentile(took_ms, 0.5),
        p99_ms=percentile(took_ms, 0.99),
        statuses=report.statuses,
        degraded=report.degraded,
        sent_late_p99_ms=report.late_s * 1000.0,
        lost=report.statuses.get("0", 0),
    )


def middle(runs: Sequence[Latencies]) -> Latencies:
    """Of rounds of the same load: the medians of their figures, the sums of their counts."""
    numbers = {name: percentile([getattr(run, name) for run in runs], 0.5) for name in _NUMBERS}
    counts = {name: dict(sum((Counter(getattr(run, name)) for run in runs), Counter())) for name in _COUNTS}
    return msgspec.convert({**numbers, **counts, "lost": sum(run.lost for run in runs)}, Latencies)


def growth(points: Sequence[tuple[int, float]]) -> Growth:
    """The slope of log cost over log n, by least squares."""
    logs = [(math.log(n), math.log(cost)) for n, cost in points if n > 0 and cost > 0.0]
    if len(logs) < 2:
        return Growth(list(points), math.nan)
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    square = sum((x - mean_x) ** 2 for x, _ in logs)
    exponent = sum((x - mean_x) * (y - mean_y) for x, y in logs) / square if square else math.nan
    return Growth(list(points), exponent)


def plain(value: Any) -> Any:
    """For JSON: structs as objects, NaN as null."""
    found = msgspec.to_builtins(value)
    return _without_nan(found)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return value
