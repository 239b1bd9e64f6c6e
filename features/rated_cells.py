"""What offers came to, for the user, for everybody and in each context at hand: all of it computed at once.

A call of numpy on fifty numbers costs as much as one on five hundred, so the families that count outcomes share
one block [tables, candidates].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from features.cells import (
    ACCEPTED,
    FAST_HALF_LIFE_S,
    OFFERED,
    OFFERED_SLOW,
    REFERENCE,
    SELF,
    SLOW_HALF_LIFE_S,
    USEFUL_FAST,
    USEFUL_SLOW,
    Cells,
)

Numbers = NDArray[np.float64]

USER, ALL, CONTEXTS = 0, 1, slice(2, None)
"""Where the tables lie on the axis of tables: the user's own, everybody's, and those of contexts."""

PRIOR_RATE = 0.1
_TIMED = slice(0, 2)
"""The tables whose last hour and week count by themselves."""


class RatedCells:
    """Columns [tables, candidates] over cells.

    Args:
        cells: [tables, candidates, WIDTH]; the tables in the order of USER, ALL and CONTEXTS.
        now_s: Unix seconds; a reference after it counts as now.
    """

    def __init__(self, cells: Cells, now_s: float) -> None:
        counts = np.ascontiguousarray(cells.transpose(2, 0, 1))
        self.counts: Numbers = counts
        """[WIDTH, tables, candidates]."""
        self.logs: Numbers = np.log1p(counts[OFFERED : SELF + 1])
        """log(1 + n) by outcome: [6, tables, candidates]."""
        self.accept_rates = pulled(counts[ACCEPTED], counts[OFFERED])
        gap_s = np.maximum(now_s - counts[REFERENCE], 0.0)
        slow = counts[OFFERED_SLOW : USEFUL_SLOW + 1] * np.exp2(gap_s * (-1.0 / SLOW_HALF_LIFE_S))
        self.accept_rates_week = pulled(slow[1], slow[0])
        recent = np.empty((2, 2, counts.shape[2]))
        np.multiply(counts[USEFUL_FAST, _TIMED], np.exp2(gap_s[_TIMED] * (-1.0 / FAST_HALF_LIFE_S)), out=recent[0])
        recent[1] = slow[1, _TIMED]
        self.recent_logs: Numbers = np.log1p(recent, out=recent)
        """log(1 + useful in the last hour, week), decayed, of USER and ALL: [2, 2, candidates]."""


def pulled(part: Numbers, whole: Numbers) -> Numbers:
    """Shares [tables, candidates], each table's pulled towards PRIOR_RATE by its own weight."""
    weights = _WEIGHTS[: len(part)]
    rates: Numbers = (part + weights * PRIOR_RATE) / (whole + weights)
    return rates


_WEIGHTS = np.array([5.0, 10.0, 5.0, 5.0, 5.0, 5.0])[:, None]
