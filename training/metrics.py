"""Ranking and probability metrics; equal scores are averaged over, never broken by id.

Every figure of one query is the expected value over uniformly random orders of the candidates that
share a score. A query without a positive says nothing about order: it is excluded and counted.
A gain above 0 is a positive; a negative gain counts as 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from training.intervals import Interval, interval, paired_interval
from training.ties import Ranked, first_block, paired, rank_blocks, worth

__all__ = [
    "METRICS",
    "Interval",
    "RankMetrics",
    "auc",
    "average_precision",
    "calibration_error",
    "coverage",
    "hit_rate",
    "interval",
    "intra_list_diversity",
    "ndcg",
    "paired_interval",
    "query_metrics",
    "reciprocal_rank",
]

Floats = NDArray[np.float64]

METRICS = ("hr@1", "hr@3", "hr@5", "mrr", "ndcg@10")


def ndcg(
    scores: ArrayLike, gains: ArrayLike, k: int | None = 10, *, exponential: bool = False, missed: ArrayLike = ()
) -> float | None:
    """Expected DCG over the best possible DCG; None without a positive.

    Args:
        scores, gains: [n].
        k: ranks that count; None for all.
        exponential: gains 2^g − 1 instead of g.
        missed: gains of relevant candidates that were not ranked: they are in the ideal only.

    Raises:
        ValueError: shapes differ, a score or gain is not finite, 2^g overflows, or k is below 1.
    """
    _check_at_least_one("k", k)
    ranked = rank_blocks(scores, gains, exponential)
    missing = worth(np.asarray(missed, np.float64), exponential)
    return _ndcg(ranked, k, missing)


def reciprocal_rank(scores: ArrayLike, gains: ArrayLike) -> float | None:
    """Expected 1/rank of the first positive; None without a positive.

    Raises:
        ValueError: as `ndcg`.
    """
    return _reciprocal_rank(rank_blocks(scores, gains))


def hit_rate(scores: ArrayLike, gains: ArrayLike, k: int) -> float | None:
    """Probability that a positive is among the first k; None without a positive.

    Raises:
        ValueError: as `ndcg`.
    """
    _check_at_least_one("k", k)
    return _hit_rate(rank_blocks(scores, gains), k)


def average_precision(scores: ArrayLike, gains: ArrayLike) -> float | None:
    """Expected mean, over the positives, of the precision at their ranks; None without a positive.

    Raises:
        ValueError: as `ndcg`.
    """
    ranked = rank_blocks(scores, gains)
    if not ranked.found:
        return None
    block = ranked.block_of
    sizes, positives = ranked.sizes[block], ranked.positives[block]
    within = np.arange(len(block)) - ranked.starts[block]
    above = (np.cumsum(ranked.positives) - ranked.positives)[block]
    # given a positive at place `within` of its block, each place above it holds one with chance (p-1)/(m-1)
    beside = within * (positives - 1) / np.maximum(sizes - 1, 1)
    expected = positives / sizes * (above + 1.0 + beside) / (np.arange(len(block)) + 1.0)
    return float(expected.sum() / ranked.found)


def auc(scores: ArrayLike, labels: ArrayLike) -> float | None:
    """Probability that a positive scores above a negative, ties counting half; None with one class only.

    Args:
        scores, labels: [n]; a label above 0 is a positive.

    Raises:
        ValueError: as `ndcg`.
    """
    ranked = rank_blocks(scores, labels)
    positives, negatives = ranked.positives, ranked.sizes - ranked.positives
    pairs = int(positives.sum()) * int(negatives.sum())
    if not pairs:
        return None
    below = negatives.sum() - np.cumsum(negatives)
    return float((positives * (below + 0.5 * negatives)).sum() / pairs)


def calibration_error(probabilities: ArrayLike, labels: ArrayLike, bins: int = 10) -> float | None:
    """Expected calibration error over bins of equal width; None without rows.

    Args:
        probabilities: [n] in [0, 1].
        labels: [n], 0 or 1.

    Raises:
        ValueError: shapes differ, a probability is outside [0, 1], or bins is below 1.
    """
    _check_at_least_one("bins", bins)
    predicted, observed = paired(probabilities, labels, "labels")
    if predicted.size == 0:
        return None
    if predicted.min() < 0.0 or predicted.max() > 1.0:
        raise ValueError(f"probabilities lie in [{predicted.min()}, {predicted.max()}], not in [0, 1]")
    bucket = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(bucket, predicted - (observed > 0.0), bins)
    return float(np.abs(gaps).sum() / predicted.size)


def coverage(lists: Sequence[Collection[Hashable]], known: Collection[Hashable]) -> float | None:
    """Share of what is known that was offered at least once; None when nothing is known."""
    everything = set(known)
    if not everything:
        return None
    return len(everything & set().union(*lists)) / len(everything)


def intra_list_diversity(vectors: ArrayLike) -> float | None:
    """Mean of 1 − cosine over the pairs of a list; None with fewer than two items.

    Args:
        vectors: [items, dimensions]; a zero vector is like nothing.

    Raises:
        ValueError: not a matrix.
    """
    rows = np.asarray(vectors, np.float64)
    if rows.ndim != 2:
        raise ValueError(f"vectors have shape {rows.shape}, not [items, dimensions]")
    n = len(rows)
    if n < 2:
        return None
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0.0)
    similar = float(np.square(unit.sum(axis=0)).sum() - np.square(unit).sum())
    return 1.0 - similar / (n * (n - 1))


def query_metrics(scores: ArrayLike, gains: ArrayLike) -> dict[str, float] | None:
    """METRICS of one query; None without a positive.

    Args:
        scores, gains: [n].

    Raises:
        ValueError: as `ndcg`.
    """
    ranked = rank_blocks(scores, gains)
    figures = (*(_hit_rate(ranked, k) for k in (1, 3, 5)), _reciprocal_rank(ranked), _ndcg(ranked, 10))
    return {name: figure for name, figure in zip(METRICS, figures, strict=True) if figure is not None} or None


@dataclass
class RankMetrics:
    """Gathers METRICS over queries.

    Args:
        values: figures of the counted queries by metric, in the order in which they came.
        excluded: queries without a positive.
    """

    values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in METRICS})
    excluded: int = 0

    @property
    def queries(self) -> int:
        """Queries that count."""
        return len(self.values[METRICS[0]])

    def add(self, scores: ArrayLike, gains: ArrayLike) -> bool:
        """Takes one query; whether it counts.

        Args:
            scores, gains: [n].

        Raises:
            ValueError: as `ndcg`.
        """
        figures = query_metrics(scores, gains)
        if figures is None:
            self.excluded += 1
            return False
        for name, figure in figures.items():
            self.values[name].append(figure)
        return True

    def array(self, name: str) -> Floats:
        """One metric by query [queries], for intervals."""
        return np.array(self.values[name])

    def means(self) -> dict[str, float | None]:
        """The mean of each metric; None when no query counts."""
        return {name: float(np.mean(figures)) if figures else None for name, figures in self.values.items()}


def _check_at_least_one(name: str, number: int | None) -> None:
    if number is not None and number < 1:
        raise ValueError(f"{name} {number} is below 1")


def _ndcg(ranked: Ranked, k: int | None, missed: Floats | None = None) -> float | None:
    best = ranked.own_gains if missed is None else np.concatenate([ranked.own_gains, missed])
    best = np.sort(best)[::-1][:k]
    ideal = float((best * _discounts(len(best))).sum())
    if ideal <= 0.0:
        return None
    shown = ranked.block_of[:k]
    expected = (ranked.gains / ranked.sizes)[shown]
    return float((expected * _discounts(len(shown))).sum()) / ideal


def _discounts(n: int) -> Floats:
    discounts: Floats = 1.0 / np.log2(np.arange(2, n + 2))
    return discounts


def _reciprocal_rank(ranked: Ranked) -> float | None:
    if not ranked.found:
        return None
    start, size, positives = first_block(ranked)
    if size == positives:
        return 1.0 / (start + 1)
    # chance that the first positive of the block is at its place j: C(m-j, p-1) / C(m, p)
    ways = math.comb(size, positives)
    return sum(
        math.comb(size - place, positives - 1) / ways / (start + place) for place in range(1, size - positives + 2)
    )


def _hit_rate(ranked: Ranked, k: int) -> float | None:
    if not ranked.found:
        return None
    start, size, positives = first_block(ranked)
    places = min(size, k - start)
    if places <= 0:
        return 0.0
    return 1.0 - math.comb(size - positives, places) / math.comb(size, places)
