"""Which item followed which, as evidence beside a model: counts over short distances, both ways.

For items a before b at distance d ≤ 3 in one history, b after a counts 1/d, and a after b .7/d. The next item is
judged from the last ten events, the newest counting most; an item that follows everything counts less.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from training.last_item.sequences import UNKNOWN, Ragged

Floats32 = NDArray[np.float32]


class TransitionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How transitions are counted and read.

    Args:
        reach: largest distance counted.
        backward: weight of the opposite direction.
        last: events of the history that speak.
        decay: weight of an event against the one after it.
        damping: exponent of the popularity that a score is divided by.
    """

    reach: int = 3
    backward: float = 0.7
    last: int = 10
    decay: float = 0.8
    damping: float = 0.3


@dataclass(frozen=True)
class Transitions:
    """Counts of what followed what.

    Args:
        matrix: [1 + items, 1 + items], each row adding up to 1 or to 0; row and column 0 are empty.
        popularity: [1 + items], shares of all events, smoothed so that none but UNKNOWN's is 0.
    """

    settings: TransitionSettings
    matrix: sparse.csr_array
    popularity: Floats32

    def probabilities(self, histories: Ragged) -> Floats32:
        """How likely each item is next, [histories, 1 + items]; a row without evidence is the popularity."""
        spoken = _recent(histories, self.matrix.shape[0], self.settings) @ self.matrix
        found: Floats32 = np.asarray(spoken.toarray(), np.float32)
        total = found.sum(axis=1, keepdims=True)
        silent = total[:, 0] <= 0.0
        total[silent] = 1.0
        np.divide(found, total, out=found)
        found[silent] = self.popularity
        return found


def popularity(train: Ragged, items: int) -> Floats32:
    """Share of each item among all events with half a count added, [1 + items]; UNKNOWN has none."""
    counts = np.bincount(train.codes, minlength=items + 1).astype(np.float64) + 0.5
    counts[UNKNOWN] = 0.0
    shares: Floats32 = (counts / counts.sum()).astype(np.float32)
    return shares


def count_transitions(train: Ragged, items: int, settings: TransitionSettings) -> Transitions:
    """Counts those of the training part.

    Args:
        items: in the vocabulary.
    """
    shares = popularity(train, items)
    matrix = counted(train, items, settings)
    damped = matrix @ sparse.diags_array(_damper(shares, settings.damping), format="csr")
    sums = np.asarray(damped.sum(axis=1)).ravel()
    scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0.0)
    return Transitions(settings, sparse.csr_array(sparse.diags_array(scale) @ damped, dtype=np.float32), shares)


def counted(train: Ragged, items: int, settings: TransitionSettings) -> sparse.csr_array:
    """Weighted counts of what followed what, [1 + items, 1 + items]."""
    row_of = np.repeat(np.arange(len(train)), train.lengths)
    matrix = sparse.csr_array((items + 1, items + 1), dtype=np.float64)
    for distance in range(1, settings.reach + 1):
        same = row_of[distance:] == row_of[:-distance]
        before, after = train.codes[:-distance][same], train.codes[distance:][same]
        known = (before != UNKNOWN) & (after != UNKNOWN) & (before != after)
        before, after = before[known], after[known]
        weights = np.full(len(before), 1.0 / distance)
        pairs = sparse.csr_array((weights, (before, after)), shape=matrix.shape)
        matrix = matrix + pairs + settings.backward * pairs.T
    return sparse.csr_array(matrix)


def _damper(shares: Floats32, damping: float) -> NDArray[np.float64]:
    return np.divide(1.0, np.power(shares, damping, dtype=np.float64), out=np.zeros(len(shares)), where=shares > 0.0)


def _recent(histories: Ragged, columns: int, settings: TransitionSettings) -> sparse.csr_array:
    """Weights of the last events, [histories, 1 + items]."""
    last = histories.take(
        np.arange(len(histories)), np.maximum(histories.lengths - settings.last, 0), histories.lengths
    )
    row_of = np.repeat(np.arange(len(last)), last.lengths)
    age = np.repeat(last.starts[1:], last.lengths) - 1 - np.arange(len(last.codes))
    weights = np.where(last.codes == UNKNOWN, 0.0, np.power(settings.decay, age))
    return sparse.csr_array((weights.astype(np.float32), (row_of, last.codes)), shape=(len(histories), columns))
