"""LightGBM's trees as arrays: all splits of all trees judged for all rows at once.

For fifty rows most of what LightGBM's own prediction costs is getting there. Here a split that sends a row to
the right takes the leaves on its left from the row; of the leaves left in a tree the first is the row's (the
idea of QuickScorer, Lucchese et al., SIGIR 2015). Leaves are added up in the order of the trees, as LightGBM
does it, so that scores are the same to the bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ranker.light_text import Fields, model_trees, numbers

MAX_LEAVES = 16
"""As many as a mask has bits."""

MAX_ROWS = 128
"""Scored at once: what is looked at between two steps stays in the processor's cache."""

DEFAULT_LEFT, MISSING_SHIFT = 2, 2
MISSING_NONE, MISSING_NAN = 0, 2
ZERO = 1e-35
"""LightGBM takes what is closer to 0 for 0."""

_LARGEST = float(np.finfo(np.float32).max)


class NotAsArrays(ValueError):
    """These trees have something that arrays do not hold; LightGBM itself has to score them."""


@dataclass(frozen=True)
class _Split:
    """A row goes to the right where its value is above the threshold; `taken` are the leaves it leaves then.

    Args:
        column: of the doubled features: the second half has the largest number in place of NaN.
    """

    column: int
    threshold: float
    taken: int


@dataclass(frozen=True)
class TreeArrays:
    """Splits in the order [place in the tree, tree], so that one `or` over places joins what they take.

    Args:
        columns, thresholds, taken: of each split; trees with fewer splits are filled up with some that take nothing.
        values: float64 of each leaf, MAX_LEAVES a tree.
        features: how many columns rows have.
    """

    columns: NDArray[np.int64]
    thresholds: NDArray[np.float32]
    taken: NDArray[np.uint16]
    values: NDArray[np.float64]
    features: int

    @classmethod
    def of(cls, text: str) -> TreeArrays:
        """The trees of a model's checked text.

        Raises:
            NotAsArrays: they have more than MAX_LEAVES leaves, take zero for missing, or split next to zero.
        """
        features, trees = model_trees(text)
        parts = [_laid_out(tree, features) for tree in trees]
        shape = max((len(splits) for splits, _ in parts), default=0), len(parts)
        columns, thresholds = np.zeros(shape, np.int64), np.full(shape, np.inf, np.float32)
        taken, values = np.zeros(shape, np.uint16), np.zeros((len(parts), MAX_LEAVES))
        for number, (splits, leaves) in enumerate(parts):
            values[number, : len(leaves)] = leaves
            for place, split in enumerate(splits):
                columns[place, number], thresholds[place, number] = split.column, split.threshold
                taken[place, number] = split.taken
        return cls(columns.ravel(), thresholds.reshape(-1, 1), taken.reshape(-1, 1), values.ravel(), features)

    def scores(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Sums of leaves [rows] for features [rows, columns]."""
        if len(rows) == 1:  # numpy adds up a single column in another order
            return self._scores(rows.repeat(2, axis=0))[:1]
        if len(rows) <= MAX_ROWS:
            return self._scores(rows)
        # No chunk of one row is left over.
        chunks = np.array_split(rows, math.ceil(len(rows) / MAX_ROWS))
        return np.concatenate([self._scores(chunk) for chunk in chunks])

    def _scores(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        trees = len(self.values) // MAX_LEAVES
        doubled = np.empty((2 * self.features, len(rows)), np.float32)
        doubled[: self.features] = rows.T
        np.fmin(doubled[: self.features], np.float32(_LARGEST), out=doubled[self.features :])
        right = doubled.take(self.columns, axis=0) > self.thresholds
        taken = np.multiply(right, self.taken).reshape(len(self.columns) // trees, trees * len(rows))
        leaves = _first_left().take(np.bitwise_or.reduce(taken, axis=0)).reshape(trees, len(rows))
        first = np.arange(0, len(self.values), MAX_LEAVES)[:, None]
        scores: NDArray[np.float64] = self.values.take(first + leaves).sum(axis=0)
        return scores


def _laid_out(tree: Fields, features: int) -> tuple[list[_Split], list[float]]:
    """A tree's splits, and the values of its leaves from left to right."""
    values = numbers(tree, b"leaf_value", float)
    if len(values) > MAX_LEAVES:
        raise NotAsArrays(f"a tree has {len(values)} leaves, more than {MAX_LEAVES}")
    if len(values) == 1:
        return [], values
    column, kind = numbers(tree, b"split_feature", int), numbers(tree, b"decision_type", int)
    threshold = numbers(tree, b"threshold", float)
    children = list(zip(numbers(tree, b"left_child", int), numbers(tree, b"right_child", int), strict=True))
    order: list[int] = []
    below: dict[int, int] = {}
    _walk(0, children, order, below)
    splits = [
        _split(column[node], threshold[node], kind[node], below[children[node][0]], features)
        for node in range(len(children))
    ]
    return splits, [values[leaf] for leaf in order]


def _walk(node: int, children: list[tuple[int, int]], order: list[int], below: dict[int, int]) -> int:
    """Numbers the leaves below a node from left to right; gives them as bits, and notes them in `below`."""
    if node < 0:
        order.append(~node)
        below[node] = 1 << (len(order) - 1)
    else:
        left, right = children[node]
        below[node] = _walk(left, children, order, below) | _walk(right, children, order, below)
    return below[node]


def _split(column: int, threshold: float, kind: int, taken: int, features: int) -> _Split:
    missing = kind >> MISSING_SHIFT
    if missing not in (MISSING_NONE, MISSING_NAN) or abs(threshold) < ZERO:
        raise NotAsArrays(f"a split at {threshold:g} of kind {kind}: zero is missing there, or not told from it")
    nan_left = bool(kind & DEFAULT_LEFT) if missing == MISSING_NAN else threshold >= 0.0
    if nan_left:  # NaN is above nothing
        return _Split(column, _at_most(threshold), taken)
    # The largest number stands for NaN, and is above every threshold but its own.
    below = float(np.nextafter(np.float32(_LARGEST), np.float32(0.0)))
    return _Split(column + features, min(_at_most(threshold), below), taken)


def _at_most(threshold: float) -> float:
    """The largest float32 that is not above: float32 features lie on the same side of both."""
    if math.isinf(threshold):
        return threshold
    with np.errstate(over="ignore"):
        near = np.float32(threshold)
    return float(near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf)))


@cache
def _first_left() -> NDArray[np.uint8]:
    """By the bits of leaves that were taken, the first that was not."""
    bits = np.arange(1 << MAX_LEAVES)
    free = ~bits & (bits + 1)  # the lowest bit that is not set
    first: NDArray[np.uint8] = np.log2(np.minimum(free, 1 << (MAX_LEAVES - 1))).astype(np.uint8)
    return first


def as_arrays(text: str) -> TreeArrays | None:
    """The trees as arrays, None where they cannot be."""
    try:
        return TreeArrays.of(text)
    except NotAsArrays:
        return None
