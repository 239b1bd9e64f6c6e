"""The one table of weight functions; training/off_policy/estimate.py is the one estimator over it.

w is a ratio of the target's probability to the log's, for the list down to a slot (prefix), for the whole list
(joint) or for a slot by itself (alone); on a log of single actions the three are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from training.off_policy.slates import Floats, Slates

Ratio = Literal["prefix", "joint", "alone"]
Shape = Callable[[Floats, float], Floats]
Limit = Callable[[int], float]
"""From the number of slates to λ."""


def plain(w: Floats, _limit: float) -> Floats:
    """w itself."""
    return w


def clip(w: Floats, limit: float) -> Floats:
    """min(w, λ); the mass that it drops is reported beside it."""
    return np.minimum(w, limit)


def shrink(w: Floats, limit: float) -> Floats:
    """λw / (w² + λ): optimistic shrinkage (Su et al., 2020), at most √λ / 2."""
    return limit * w / (w * w + limit)


def root_of(slates: int) -> float:
    """√n: what clipping drops vanishes faster than the error of the rest (Ionides, 2008)."""
    return math.sqrt(slates)


def all_of(slates: int) -> float:
    """n: the largest weight becomes √n / 2, and the bias, at most mean(w³) / n, vanishes faster than the error.

    A λ chosen for the least squared error would be smaller, and its interval too short: what shrinking costs is
    not seen in the variance.
    """
    return float(slates)


@dataclass(frozen=True)
class WeightFunction:
    """How an estimator weighs a slot's reward.

    Args:
        ratio: which w; None for the direct method, which has none.
        shape: w [slates, slots] and λ to the weight used.
        limit: how λ is found; None where there is none.
        normalised: divided by the weights' own mean in each slot, instead of by 1.
        model: whether a reward model q̂ is used.
        lists, single: whether it is shown for lists, and for single actions; what would repeat another is not.
    """

    ratio: Ratio | None
    shape: Shape = plain
    limit: Limit | None = None
    normalised: bool = False
    model: bool = False
    lists: bool = True
    single: bool = True

    def ratios(self, slates: Slates) -> Floats | None:
        """The unshaped w [slates, slots]: what overlap is judged by. None where it is not known."""
        return None if self.ratio is None else RATIOS[self.ratio](slates)


RATIOS: Mapping[Ratio, Callable[[Slates], Floats | None]] = {
    "prefix": lambda slates: slates.prefix,
    "joint": lambda slates: slates.joint,
    "alone": lambda slates: slates.alone,
}

WEIGHTS: Mapping[str, WeightFunction] = {
    "ips": WeightFunction("prefix", lists=False),
    "snips": WeightFunction("prefix", normalised=True),
    "clipped": WeightFunction("prefix", clip, root_of),
    "dm": WeightFunction(None, model=True),
    "dr": WeightFunction("prefix", model=True, lists=False),
    "dr-shrinkage": WeightFunction("prefix", shrink, all_of, model=True),
    "sips": WeightFunction("joint", single=False),
    "iips": WeightFunction("alone", single=False),
    "rips": WeightFunction("prefix", single=False),
    "cascade-dr": WeightFunction("prefix", model=True, single=False),
}
"""By the estimator's name, in the order of the report. `ips` and `dr` of a list are `rips` and `cascade-dr`."""


def shown_for(slots: int) -> list[str]:
    """The estimators of a log whose lists have so many slots."""
    return [name for name, weight in WEIGHTS.items() if (weight.single if slots == 1 else weight.lists)]
