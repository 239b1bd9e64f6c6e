"""Bounds that the rules rest on: of means over clusters, and of ratios of paired times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from training.intervals import clustered_se

Floats = NDArray[np.float64]

P99 = 0.99
_CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Bounds:
    """An estimate and one-sided bounds."""

    value: float
    low: float
    high: float


def mean_bounds(values: Floats, clusters: NDArray[np.int64], alpha_low: float, alpha_high: float) -> Bounds:
    """One-sided bounds of a mean by Student's t over clusters: good far into the tails, where a bootstrap is not.

    Args:
        values, clusters: [rows], at least two clusters.
        alpha_low, alpha_high: chance that the truth is below `low`, and above `high`.
    """
    mean = float(values.mean())
    error = clustered_se(values - mean, clusters)
    freedom = len(np.unique(clusters)) - 1
    return Bounds(
        mean,
        mean - float(student.ppf(1.0 - alpha_low, freedom)) * error,
        mean + float(student.ppf(1.0 - alpha_high, freedom)) * error,
    )


def time_ratios(
    candidate: Floats, baseline: Floats, block: int, seed: int, draws: int, level: float
) -> tuple[Bounds, Bounds]:
    """Candidate over baseline: the ratio of p99s, and that of means, with intervals.

    A paired block bootstrap: runs of neighbouring requests are drawn together, the same ones for both, so that what
    the machine did to both at a time cancels.

    Args:
        candidate, baseline: [requests], above 0, in the order they were measured in.
        block: requests that are drawn together.
    """
    drawn = _drawn(candidate, baseline, block, seed, draws)
    tails = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
    values = (
        np.quantile(candidate, P99) / np.quantile(baseline, P99),
        candidate.mean() / baseline.mean(),
    )
    lows, highs = np.quantile(drawn, tails, axis=0)
    p99, mean = (
        Bounds(float(value), float(low), float(high)) for value, low, high in zip(values, lows, highs, strict=True)
    )
    return p99, mean


def p99_bounds(times: Floats, block: int, seed: int, draws: int, level: float) -> Bounds:
    """The p99 of times [requests] with its interval, by the same bootstrap."""
    drawn = _drawn(times, np.ones_like(times), block, seed, draws)[:, 0]
    low, high = np.quantile(drawn, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Bounds(float(np.quantile(times, P99)), float(low), float(high))


def _drawn(candidate: Floats, baseline: Floats, block: int, seed: int, draws: int) -> Floats:
    """Ratios [draws, 2] of p99s and means."""
    block = max(1, min(block, len(candidate) // 20))
    blocks = len(candidate) // block
    rows = np.arange(blocks * block).reshape(blocks, block)
    rng = np.random.default_rng(seed)
    found = np.empty((draws, 2))
    step = max(1, _CELLS_AT_ONCE // max(blocks * block, 1))
    for start in range(0, draws, step):
        picked = rows[rng.integers(0, blocks, (min(step, draws - start), blocks))].reshape(-1, blocks * block)
        ours, theirs = candidate[picked], baseline[picked]
        found[start : start + step, 0] = _p99(ours) / _p99(theirs)
        found[start : start + step, 1] = ours.mean(axis=1) / theirs.mean(axis=1)
    return found


def _p99(times: Floats) -> Floats:
    """[draws] of times [draws, requests]."""
    return np.asarray(np.quantile(times, P99, axis=1), np.float64)
