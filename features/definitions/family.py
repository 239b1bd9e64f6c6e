"""The role of a feature family: some columns of the vector, read for all candidates at once.

How events change what a family reads is its table key (features/situation.py) and the outcome's kind
(features/cells.py), so that serving and replay cannot differ.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from features.known import Moment

Columns = NDArray[np.float64]


class Family(Protocol):
    """Named columns; NaN is 'not known', which the trees treat as missing."""

    @property
    def name(self) -> str:
        """Stable name, the prefix of its columns."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        ...

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]; best a transposed [columns, candidates], whose columns are contiguous."""
        ...


def age_hours(now_s: float, times_s: Columns) -> Columns:
    """log(1 + hours since), NaN where the time is 0 (never); the future counts as now."""
    hours = np.log1p(np.maximum(now_s - times_s, 0.0) / 3600.0)
    hours[times_s <= 0.0] = np.nan
    return hours


def ratio(part: Columns, whole: Columns, prior: float, weight: float) -> Columns:
    """(part + weight·prior) / (whole + weight), a share pulled towards `prior`."""
    return (part + weight * prior) / (whole + weight)


def dense_rank(scores: Columns) -> Columns:
    """Number of candidates with a higher score; ties share it, NaN stays NaN."""
    unknown = np.isnan(scores)
    missing = np.count_nonzero(unknown)
    ordered = scores.copy()
    ordered.sort()  # NaN last
    known = len(ordered) - missing
    ranks: Columns = np.subtract(known, ordered[:known].searchsorted(scores, side="right"), dtype=np.float64)
    if missing:
        ranks[unknown] = np.nan
    return ranks


def against_best(scores: Columns) -> Columns:
    """The scores, their gaps to the best, and their ranks: [candidates, 3]; NaN stays NaN."""
    columns = np.empty((3, len(scores)))
    columns[0] = scores
    np.subtract(scores, np.fmax.reduce(scores), out=columns[1])
    columns[2] = dense_rank(scores)
    return columns.T
