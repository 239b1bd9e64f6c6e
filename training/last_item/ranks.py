"""Figures of queries with one answer among all items; equal scores share their places evenly.

The closed form of what training.metrics computes query by query for any gains, for a whole matrix at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from training.last_item.sequences import UNKNOWN, Codes, Ragged

Floats = NDArray[np.float64]
Scores = NDArray[np.float32]

METRICS = ("hr@1", "hr@3", "hr@5", "hr@10", "mrr", "ndcg@5", "ndcg@10")
TOP = 10

_MOST = 1 << 20
_GAINS = {"hr@1": 1, "hr@3": 3, "hr@5": 5, "hr@10": 10, "ndcg@5": 5, "ndcg@10": 10}


@dataclass
class Judged:
    """Figures by query, gathered batch by batch.

    Args:
        shown: items that were among somebody's first TOP.
    """

    figures: dict[str, list[Floats]] = field(default_factory=lambda: {name: [] for name in METRICS})
    shown: set[int] = field(default_factory=set)

    def add(self, scores: Scores, answers: Codes) -> None:
        """Takes a batch.

        Args:
            scores: [queries, 1 + items], the first column is nobody's; -inf where an item is excluded.
            answers: [queries].
        """
        above, level = places(scores, answers)
        for name, values in figures(above, level).items():
            self.figures[name].append(values)
        self.shown.update(np.unique(first(scores, TOP)).tolist())
        self.shown.discard(UNKNOWN)

    def array(self, metric: str) -> Floats:
        """One metric by query, [queries]."""
        return np.concatenate(self.figures[metric]) if self.figures[metric] else np.zeros(0)

    def means(self) -> dict[str, float]:
        """The mean of each metric."""
        return {name: float(self.array(name).mean()) for name in METRICS}


def places(scores: Scores, answers: Codes) -> tuple[Floats, Floats]:
    """How many items score above each answer, and how many the same, itself counted.

    An answer that is UNKNOWN or excluded has all items above it.
    """
    rows = np.arange(len(answers))
    own = scores[rows, answers]
    found = (answers != UNKNOWN) & np.isfinite(own)
    known = scores[:, 1:]
    above = (known > own[:, None]).sum(axis=1).astype(np.float64)
    level = (known == own[:, None]).sum(axis=1).astype(np.float64)
    return np.where(found, above, np.inf), np.where(found, level, 1.0)


def figures(above: Floats, level: Floats) -> dict[str, Floats]:
    """Expected METRICS [queries] when the answer is equally likely at places above + 1 … above + level."""
    return {
        **{name: _expected(_gain(name, k), above, level) for name, k in _GAINS.items()},
        "mrr": _expected(_reciprocal(int(min(_MOST, _ends(above, level).max(initial=1.0)))), above, level),
    }


def exclude(scores: Scores, histories: Ragged) -> None:
    """Takes the items of each history out of its row, in place."""
    scores[np.repeat(np.arange(len(histories)), histories.lengths), histories.codes] = -np.inf


def first(scores: Scores, k: int) -> NDArray[np.intp]:
    """The k best columns of each row, in no order; UNKNOWN where there are fewer."""
    k = min(k, scores.shape[1] - 1)
    best = np.argpartition(-scores[:, 1:], k - 1, axis=1)[:, :k] + 1
    taken = np.take_along_axis(scores, best, axis=1)
    return np.where(np.isfinite(taken), best, UNKNOWN)


def _gain(name: str, k: int) -> Floats:
    places = np.arange(1, k + 1)
    return np.ones(k) if name.startswith("hr") else 1.0 / np.log2(places + 1.0)


def _reciprocal(most: int) -> Floats:
    return 1.0 / np.arange(1, most + 1)


def _ends(above: Floats, level: Floats) -> Floats:
    return np.where(np.isfinite(above), above + level, 1.0)


def _expected(gains: Floats, above: Floats, level: Floats) -> Floats:
    """Mean of gains[above … above + level), 0 past its end."""
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    n = len(gains)
    start = np.minimum(above, n).astype(np.int64)
    stop = np.minimum(above + level, n).astype(np.int64)
    expected: Floats = (sums[stop] - sums[start]) / level
    return expected
