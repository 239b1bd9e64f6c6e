"""q̂: what a reward model expects of what was shown, and of what the target would show; cross-fitted by user.

Each user's rewards are predicted by a model that learned from the other folds' users only: DR's interval would
be too short otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from training.off_policy.reward_models import Fit, Predictor
from training.off_policy.slates import Floats, Slates
from training.off_policy.terms import Predicted

FOLDS = 4
_CELLS_AT_ONCE = 8_000_000


class Inputs(Protocol):
    """What a reward model may know of a candidate in a slot."""

    @property
    def cells(self) -> int:
        """Numbers per slate of `pool`."""
        ...

    def shown(self, rows: NDArray[np.int64]) -> Floats:
        """Of what was shown [rows, slots, columns]."""
        ...

    def pool(self, rows: NDArray[np.int64]) -> Floats:
        """Of all that could have been shown [rows, slots, pool, columns]."""
        ...


@dataclass(frozen=True)
class TargetChances:
    """The target's P(candidate in this slot) [slates, slots, pool]: given the list above, and whatever is above."""

    given: NDArray[np.floating]
    alone: NDArray[np.floating] | None


def folds_of(users: NDArray[np.int64], folds: int, seed: int) -> NDArray[np.int64]:
    """Each row's fold [slates]; a user is in one fold, and folds have as many users as they can."""
    codes, rows = np.unique(users, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(codes))
    return np.asarray(order[rows] % folds, np.int64)


def predict(
    slates: Slates, reward: str, inputs: Inputs, target: TargetChances, fit: Fit, folds: int = FOLDS, seed: int = 0
) -> Predicted:
    """q̂ of one reward, out of fold."""
    fold = folds_of(slates.users, folds, seed)
    shape = slates.shown.shape
    logged, expected, direct = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for held in np.unique(fold):
        model = _fitted(slates, slates.rewards[reward], inputs, np.flatnonzero(fold != held), fit)
        for rows in _chunks(np.flatnonzero(fold == held), inputs.cells):
            logged[rows] = _ask(model, inputs.shown(rows))
            pool = _ask(model, inputs.pool(rows))
            expected[rows] = (target.given[rows] * pool).sum(axis=2)
            if target.alone is not None:
                direct[rows] = (target.alone[rows] * pool).sum(axis=2)
    shown = slates.shown
    return Predicted(logged * shown, expected * shown, None if target.alone is None else direct * shown)


def _fitted(slates: Slates, rewards: Floats, inputs: Inputs, rows: NDArray[np.int64], fit: Fit) -> Predictor:
    shown = slates.shown[rows]
    return fit(inputs.shown(rows)[shown], rewards[rows][shown])


def _ask(model: Predictor, inputs: Floats) -> Floats:
    """Predictions for inputs [..., columns] → [...]."""
    return model(inputs.reshape(-1, inputs.shape[-1])).reshape(inputs.shape[:-1])


def _chunks(rows: NDArray[np.int64], cells: int) -> Iterator[NDArray[np.int64]]:
    step = max(1, _CELLS_AT_ONCE // max(cells, 1))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]
