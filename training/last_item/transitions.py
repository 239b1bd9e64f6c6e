"""Which item followed which, as evidence beside a model: counts over distances, both ways.

For items a before b at distance d ≤ reach in one history, b after a counts 1/d, and a after b backward/d. With n_ab
their sum, a says n_ab / ((n_a + doubt)^evening · n_b^damping) for b: with few events of each item, how much is known
of a must count (evening below 1), or a pair seen once outweighs one seen ten times. The events of the history add up,
the newest counting most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
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
        evening: exponent of an item's own counts that its row is divided by: at 1 one that was seen once speaks as
            loud as one that was seen a hundred times, at 0 each pair counts once.
        doubt: counts added to them before.
        damping: exponent of what leads to an item that its column is divided by: what follows everything says little.
        smoothing: share of the popularity in the probabilities, so that none but UNKNOWN's is 0.
    """

    reach: Annotated[int, Meta(ge=1, le=1000)] = 10
    backward: Annotated[float, Meta(ge=0, le=1)] = 1.0
    last: Annotated[int, Meta(ge=1, le=4096)] = 50
    decay: Annotated[float, Meta(gt=0, le=1)] = 0.8
    evening: Annotated[float, Meta(ge=0, le=1)] = 0.5
    doubt: Annotated[float, Meta(gt=0, le=1000)] = 3.0
    damping: Annotated[float, Meta(ge=0, le=1)] = 0.3
    smoothing: Annotated[float, Meta(gt=0, le=1)] = 0.1


@dataclass(frozen=True)
class Transitions:
    """Evidence of what follows what.

    Args:
        matrix: [1 + items, 1 + items] of what is not below 0; row and column 0 are empty.
        popularity: [1 + items], shares of all events, smoothed so that none but UNKNOWN's is 0.
    """

    settings: TransitionSettings
    matrix: sparse.csr_array
    popularity: Floats32

    def probabilities(self, histories: Ragged) -> Floats32:
        """How likely each item is next, [histories, 1 + items]; without evidence as likely as it is popular."""
        spoken = _recent(histories, self.matrix.shape[0], self.settings) @ self.matrix
        found: Floats32 = np.asarray(spoken.toarray(), np.float32)
        total = found.sum(axis=1, keepdims=True)
        silent = total[:, 0] <= 0.0
        total[silent] = 1.0
        smoothing = np.float32(self.settings.smoothing)
        found *= (np.float32(1.0) - smoothing) / total
        found += smoothing * self.popularity
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
    matrix = counted(train, items, settings.reach, settings.backward)
    return weigh_transitions(matrix, popularity(train, items), settings)


def weigh_transitions(matrix: sparse.csr_array, shares: Floats32, settings: TransitionSettings) -> Transitions:
    """What counts say.

    Args:
        matrix: as `counted` by the settings' reach.
        shares: the popularity.
    """
    rows = _powers(np.asarray(matrix.sum(axis=1)).ravel(), -settings.evening, settings.doubt)
    columns = _powers(np.asarray(matrix.sum(axis=0)).ravel(), -settings.damping, 0.0)
    weighed = sparse.diags_array(rows) @ matrix @ sparse.diags_array(columns)
    return Transitions(settings, sparse.csr_array(weighed, dtype=np.float32), shares)


def counted(train: Ragged, items: int, reach: int, backward: float) -> sparse.csr_array:
    """Weighted counts of what followed what, [1 + items, 1 + items]."""
    row_of = np.repeat(np.arange(len(train)), train.lengths)
    matrix = sparse.csr_array((items + 1, items + 1), dtype=np.float64)
    for distance in range(1, min(reach, int(train.lengths.max(initial=1)) - 1) + 1):
        same = row_of[distance:] == row_of[:-distance]
        before, after = train.codes[:-distance][same], train.codes[distance:][same]
        known = (before != UNKNOWN) & (after != UNKNOWN) & (before != after)
        before, after = before[known], after[known]
        weights = np.full(len(before), 1.0 / distance)
        pairs = sparse.csr_array((weights, (before, after)), shape=matrix.shape)
        matrix = matrix + pairs + backward * pairs.T
    return sparse.csr_array(matrix)


def _powers(sums: NDArray[np.float64], exponent: float, doubt: float) -> NDArray[np.float64]:
    """(sum + doubt) ** exponent, 0 where there is nothing."""
    return np.power(sums + doubt, exponent, out=np.zeros_like(sums), where=sums > 0.0)


def _recent(histories: Ragged, columns: int, settings: TransitionSettings) -> sparse.csr_array:
    """Weights of the last events, [histories, 1 + items]."""
    last = histories.take(
        np.arange(len(histories)), np.maximum(histories.lengths - settings.last, 0), histories.lengths
    )
    row_of = np.repeat(np.arange(len(last)), last.lengths)
    age = np.repeat(last.starts[1:], last.lengths) - 1 - np.arange(len(last.codes))
    weights = np.where(last.codes == UNKNOWN, 0.0, np.power(settings.decay, age))
    return sparse.csr_array((weights.astype(np.float32), (row_of, last.codes)), shape=(len(histories), columns))
