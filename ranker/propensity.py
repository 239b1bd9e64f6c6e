"""Plackett–Luce orders and the exact propensity of each slot shown.

An order is drawn with share ε by Plackett–Luce over utilities (the next item is a with probability
e^u(a) / Σ e^u over those left), else it is the greedy one:
P(prefix) = ε·Π PL + (1−ε)·1[it is the greedy prefix]. What is logged is the mixture, not the branch taken:
a slot's propensity is P(prefix to it) / P(prefix above it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SMALLEST = float(np.finfo(np.float64).tiny)
LOWEST_UTILITY = -1e300


@dataclass(frozen=True)
class Exploration:
    """How often and how boldly the order is drawn.

    Args:
        epsilon: share of requests in [0, 1].
        temperature: the larger, the more even the draw.
    """

    epsilon: float = 0.0
    temperature: float = 1.0

    def utilities(self, scores: Floats) -> Floats:
        """Scores over the temperature, relative to the best: finite, at most 0."""
        with np.errstate(over="ignore"):
            relative = (scores - scores.max(initial=-math.inf)) / self.temperature
        return np.asarray(np.maximum(relative, LOWEST_UTILITY), np.float64)


GREEDY = Exploration()
"""No exploration."""


def draw_order(utilities: Floats, seed: int) -> list[int]:
    """A Plackett–Luce order of all rows: by utility plus Gumbel noise, highest first.

    The noise comes from the raw bits of PCG64, which are the same in every version and process.
    """
    bits = np.random.PCG64(seed).random_raw(len(utilities))
    uniform = (np.asarray(bits, np.uint64) >> np.uint64(12)).astype(np.float64)
    uniform = (uniform + 0.5) * 2.0**-52  # within (0, 1): neither end can be hit
    noisy = utilities - np.log(-np.log(uniform))
    return [int(row) for row in np.argsort(-noisy, kind="stable")]


def slot_propensities(utilities: Floats, agreeing: int, epsilon: float, slots: int) -> Floats:
    """The propensity of each of the first `slots` slots, in (0, 1].

    Args:
        utilities: of all that could have been shown, in the order shown.
        agreeing: how many of the first slots hold the same as the greedy order.
        epsilon: share of drawn orders. At 0 each propensity is exactly 1.
    """
    slots = min(slots, len(utilities))
    if epsilon <= 0.0:
        return np.ones(slots)
    left = np.logaddexp.accumulate(utilities[::-1])[::-1][:slots]  # of what was left at each slot
    steps = np.minimum(utilities[:slots] - left, 0.0)
    index = np.arange(slots)
    fixed = math.log1p(-epsilon) if epsilon < 1.0 else -math.inf
    mixture = np.logaddexp(math.log(epsilon) + np.cumsum(steps), np.where(index < agreeing, fixed, -math.inf))
    above = np.concatenate([[0.0], mixture[:-1]])
    # Below the first difference from the greedy order only the draw is left, so a slot is its own step.
    logs = np.where(index <= agreeing, mixture - above, steps)
    return np.clip(np.exp(logs), SMALLEST, 1.0)


def agreement(order: Sequence[int], greedy: Sequence[int]) -> int:
    """How many of the first slots are the same."""
    return next((slot for slot, (a, b) in enumerate(zip(order, greedy, strict=True)) if a != b), len(order))
