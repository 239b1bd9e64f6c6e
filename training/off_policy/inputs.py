"""What the reward model knows of a candidate in a slot: the action, the slot, scores, and the context's words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from training.off_policy.gathered import Pools
from training.off_policy.slates import Floats

ACTION_COLUMNS = 64
WORD_COLUMNS = 32
"""More actions or words than columns share them."""


@dataclass(frozen=True)
class LogInputs:
    """Columns: one per action, one per position, the scores (standardised), one per word of the context."""

    pools: Pools

    @cached_property
    def columns(self) -> int:
        """How many there are."""
        return int(self.pools.scores.shape[2]) + self._actions + self._positions + self._words

    @property
    def cells(self) -> int:
        """Numbers per slate of `pool`."""
        return int(np.prod(self.pools.given.shape[1:])) * self.columns

    def shown(self, rows: NDArray[np.int64]) -> Floats:
        """Of what was shown [rows, slots, columns]."""
        return self._matrix(rows, self.pools.shown[rows])

    def pool(self, rows: NDArray[np.int64]) -> Floats:
        """Of the whole pool [rows, slots, pool, columns]."""
        _, slots, width = self.pools.given.shape
        places = np.broadcast_to(np.arange(width), (len(rows), slots, width))
        return self._matrix(rows, places)

    @cached_property
    def _actions(self) -> int:
        return min(len(self.pools.names), ACTION_COLUMNS)

    @cached_property
    def _positions(self) -> int:
        return int(self.pools.positions.max()) + int(self.pools.given.shape[1]) - 1

    @cached_property
    def _words(self) -> int:
        return min(len(self.pools.words), WORD_COLUMNS)

    @cached_property
    def _scaled(self) -> NDArray[np.float32]:
        inside = self.pools.actions >= 0
        known = self.pools.scores[inside]
        spread = known.std(axis=0)
        scaled = (self.pools.scores - known.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
        return np.asarray(np.clip(scaled, -5.0, 5.0), np.float32)

    @cached_property
    def _context(self) -> NDArray[np.float32]:
        found = np.zeros((len(self.pools.positions), self._words), np.float32)
        for words in self.pools.context.T:
            rows = np.flatnonzero(words >= 0)
            found[rows, words[rows] % self._words] = 1.0
        return found

    def _matrix(self, rows: NDArray[np.int64], places: NDArray[np.int64]) -> Floats:
        """For places [rows, slots, …] of the pool: [rows, slots, …, columns]."""
        each = rows.reshape(-1, *([1] * (places.ndim - 1)))
        slots = np.arange(places.shape[1]).reshape(1, -1, *([1] * (places.ndim - 2)))
        matrix = np.zeros((*places.shape, self.columns))
        actions = self.pools.actions[each, places]
        columns = np.maximum(actions, 0) % self._actions
        np.put_along_axis(matrix, columns[..., None].astype(np.int64), 1.0, axis=-1)
        positions = np.broadcast_to(self._actions + self.pools.positions[each] - 1 + slots, places.shape)
        np.put_along_axis(matrix, positions[..., None].astype(np.int64), 1.0, axis=-1)
        start = self._actions + self._positions
        kinds = self.pools.scores.shape[2]
        matrix[..., start : start + kinds] = self._scaled[each, places]
        matrix[..., start + kinds :] = self._context[each]
        return matrix
