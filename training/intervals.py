"""Intervals over whole clusters (dialogues, users): means, paired differences, ratios, and linearised errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_DRAWN_AT_ONCE = 2_000_000


class Interval(msgspec.Struct, frozen=True):
    """A mean over queries and where it lies; the bounds are None with fewer than two clusters.

    Args:
        queries, clusters: how many it rests on.
        level: share of such intervals that cover the truth.
    """

    mean: float | None
    low: float | None
    high: float | None
    queries: int
    clusters: int
    level: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval is on one side of 0."""
        return self.low is not None and self.high is not None and (self.low > 0.0 or self.high < 0.0)


def interval(
    values: ArrayLike, clusters: Sequence[Any] | NDArray[Any], seed: int, draws: int = 2000, level: float = 0.95
) -> Interval:
    """Percentile bootstrap of the mean, clusters drawn with replacement.

    A draw's mean is its sum over its count, both resampled: clusters differ in size.

    Args:
        values: [queries], finite.
        clusters: [queries], the cluster of each value: strings, integers or other sortable keys.

    Raises:
        ValueError: lengths differ, a value is not finite, or draws or level is out of range.
    """
    figures = np.asarray(values, np.float64)
    _check(figures, len(clusters), draws, level)
    if figures.size == 0:
        return Interval(None, None, None, 0, 0, level)
    _, codes = np.unique(np.asarray(clusters), return_inverse=True)
    sums: Floats = np.bincount(codes, figures).astype(np.float64)
    counts = np.bincount(codes).astype(np.float64)
    mean = float(figures.mean())
    if len(sums) < 2:
        return Interval(mean, None, None, len(figures), len(sums), level)
    means = _resampled_means(sums, counts, np.random.default_rng(seed), draws)
    low, high = np.quantile(means, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(mean, float(low), float(high), len(figures), len(sums), level)


def paired_interval(
    a: ArrayLike,
    b: ArrayLike,
    clusters: Sequence[Any] | NDArray[Any],
    seed: int,
    draws: int = 2000,
    level: float = 0.95,
) -> Interval:
    """The interval of mean(a − b), paired by query.

    Args:
        a, b: [queries], the same queries in the same order.
        clusters: [queries].

    Raises:
        ValueError: as `interval`.
    """
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if left.shape != right.shape:
        raise ValueError(f"a has shape {left.shape} and b {right.shape}: they are not paired")
    return interval(left - right, clusters, seed, draws, level)


def clustered_se(influence: ArrayLike, clusters: Sequence[Any] | NDArray[Any], small: bool = True) -> float:
    """Standard error of an estimate whose error is the mean of `influence`, rows of a cluster moving together.

    √Σ(cluster sums)² / n; with every row a cluster of its own and `influence` = w(r − V) / mean w, that of SNIPS.

    Args:
        influence: [rows], summing to 0.
        small: times √(G / (G − 1)) for G clusters, as the variance of a mean has; inf for one cluster.
    """
    rows = np.asarray(influence, np.float64)
    _, codes = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.bincount(codes, rows)
    if len(sums) < 2:
        return float("inf")
    correction = len(sums) / (len(sums) - 1.0) if small else 1.0
    scale = np.abs(sums).max() or 1.0  # so that no square overflows
    return float(scale * np.sqrt(((sums / scale) ** 2).sum() * correction) / len(rows))


def resampled_ratios(
    numerators: Floats, denominators: Floats, clusters: Sequence[Any] | NDArray[Any], seed: int, draws: int
) -> Floats:
    """Bootstrapped ratios: numerator and denominator resampled together, whole clusters drawn with replacement.

    Args:
        numerators, denominators: [rows, ratios], finite.
        clusters: [rows].

    Returns:
        Σ numerators / Σ denominators [draws, ratios]; nan where the latter is 0.
    """
    _, codes = np.unique(np.asarray(clusters), return_inverse=True)
    size = int(codes.max()) + 1
    columns = np.concatenate([numerators, denominators], axis=1)
    sums = np.stack([np.bincount(codes, column, size) for column in columns.T], axis=1)
    rng = np.random.default_rng(seed)
    totals = np.empty((draws, sums.shape[1]))
    step = max(1, _DRAWN_AT_ONCE // size)
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        drawn = rng.integers(0, size, (rows, size)) + np.arange(rows)[:, None] * size
        counts = np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size)
        totals[start : start + rows] = counts @ sums
    above, below = np.hsplit(totals, 2)
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below != 0.0)


def _resampled_means(sums: Floats, counts: Floats, rng: np.random.Generator, draws: int) -> Floats:
    means = np.empty(draws)
    step = max(1, _DRAWN_AT_ONCE // len(sums))
    for start in range(0, draws, step):
        drawn = rng.integers(0, len(sums), (min(step, draws - start), len(sums)))
        means[start : start + step] = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    return means


def _check(figures: Floats, clusters: int, draws: int, level: float) -> None:
    if figures.ndim != 1 or len(figures) != clusters:
        raise ValueError(f"values have shape {figures.shape}, not one per cluster name ({clusters})")
    if not np.isfinite(figures).all():
        raise ValueError(f"values[{int(np.flatnonzero(~np.isfinite(figures))[0])}] is not finite")
    if draws < 1 or not 0.0 < level < 1.0:
        raise ValueError(f"draws {draws} must be at least 1, and level {level} between 0 and 1")
