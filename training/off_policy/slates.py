"""Logged slates as arrays, the target's probabilities beside the log's: all that an estimator sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Slates:
    """One row per slate; a log that shows one action at a time has one slot.

    Where a slate ends before the last slot, both probabilities are 1, every reward is 0 and `shown` is false:
    whether there is a slot does not depend on the policy.

    Args:
        users: [slates], the cluster of each row, in any codes.
        logged, target: [slates, slots], P(this action | context, the actions above it) of either policy.
        shown: [slates, slots], whether the slot was filled.
        rewards: by name, [slates, slots], finite.
        logged_alone, target_alone: [slates, slots], P(this action in this slot) whatever is above; None where
            they are not known, which IIPS needs.
    """

    users: NDArray[np.int64]
    logged: Floats
    target: Floats
    shown: NDArray[np.bool_]
    rewards: Mapping[str, Floats]
    logged_alone: Floats | None = None
    target_alone: Floats | None = None

    def __len__(self) -> int:
        return len(self.users)

    @property
    def slots(self) -> int:
        """Of the longest slate."""
        return int(self.logged.shape[1])

    @cached_property
    def prefix(self) -> Floats:
        """w₁:ₖ [slates, slots]: the ratio of both policies for the list down to each slot; inf where it overflows."""
        with np.errstate(over="ignore", divide="ignore"):
            logs = np.cumsum(np.log(self.target) - np.log(self.logged), axis=1)
            return np.exp(np.where(np.isnan(logs), -np.inf, logs)) if self.slots > 1 else self.target / self.logged

    @cached_property
    def joint(self) -> Floats:
        """The ratio of the whole list, at each of its slots [slates, slots]."""
        return np.repeat(self.prefix[:, -1:], self.slots, axis=1)

    @cached_property
    def alone(self) -> Floats | None:
        """The ratio of each slot by itself [slates, slots]; None where it is not known."""
        if self.slots == 1:
            return self.prefix
        if self.logged_alone is None or self.target_alone is None:
            return None
        with np.errstate(over="ignore"):
            return self.target_alone / self.logged_alone

    def pick(self, rows: NDArray[Any]) -> Slates:
        """Only these rows: a mask or row numbers."""
        return Slates(
            self.users[rows],
            self.logged[rows],
            self.target[rows],
            self.shown[rows],
            {name: array[rows] for name, array in self.rewards.items()},
            None if self.logged_alone is None else self.logged_alone[rows],
            None if self.target_alone is None else self.target_alone[rows],
        )
