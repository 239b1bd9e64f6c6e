"""Which candidates the second stage is asked about, and how its scores and the light stage's make one order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def passed_on(light: NDArray[np.floating[Any]], most: int) -> NDArray[np.int64]:
    """Rows of the best by the light stage's score, in their own order; at equal scores the earlier rows."""
    if len(light) <= most:
        return np.arange(len(light))
    return np.sort(np.argsort(-light, kind="stable")[:most])


def one_order(light: NDArray[np.floating[Any]], rows: NDArray[np.int64], scores: Floats) -> Floats:
    """Scores [candidates]: the second stage's where it was asked, and below them the rest in the light stage's order.

    Args:
        light: [candidates].
        rows: those that the second stage was asked about, and `scores` what it answered, [rows].
    """
    found = np.asarray(light, np.float64).copy()
    rest = np.ones(len(found), np.bool_)
    rest[rows] = False
    if rest.any() and len(rows):
        found[rest] += scores.min() - 1.0 - found[rest].max()
    found[rows] = scores
    return found
