"""Gains as LightGBM wants them: whole grades from 0 on, and what each is worth."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray


class GainTable(msgspec.Struct, frozen=True):
    """Grades of rows and the worth of each grade.

    Args:
        grades: [rows], from 0 on.
        worth: [grades], rising from 0: a dismissal is worth less than an ignored offer, so all are shifted by it.
            A shift changes no difference between two candidates, so only a query's weight.
    """

    grades: NDArray[np.int32]
    worth: list[float]


def gain_table(gains: NDArray[np.float64], exponential: bool) -> GainTable:
    """The table of gains [rows].

    Args:
        exponential: a gain of g is worth 2^g − 1, and one of −g costs that much.

    Raises:
        ValueError: a gain is not finite.
    """
    if not np.isfinite(gains).all():
        raise ValueError("gains hold a value that is not finite")
    values = np.union1d(gains, [0.0])
    worth = np.sign(values) * (np.exp2(np.abs(values)) - 1.0) if exponential else values
    return GainTable(np.searchsorted(values, gains).astype(np.int32), (worth - worth[0]).tolist())
