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


@dataclass(frozen=True)
class WeightFunction:
    """How an estimator weighs a slot's reward.

    Args:
        ratio: which w; None for the direct method, which has none.
        shape: w [slates, slots] and the limit λ to the weight used.
        normalised: divided by the weights' own mean in each slot, instead of by 1.
        model: whether a reward model q̂ is used.
        needs_limit: whether λ matters.
        for_lists, for_single: whether it is shown for lists, and for single actions; what would repeat another
            is not.
    """

    ratio: Ratio | None
    shape: Shape
    normalised: bool = False
    model: bool = False
    needs_limit: bool = False
    for_lists: bool = True
    for_single: bool = True

    def ratios(self, slates: Slates) -> Floats | None:
        """The unshaped w [slates, slots]: what overlap is judged by. None where it is not known."""
        return None if self.ratio is None else getattr(slates, self.ratio)


def plain(w: Floats, _limit: float) -> Floats:
    """w itself."""
    return w


def clip(w: Floats, limit: float) -> Floats:
    """min(w, λ); the mass that it drops is reported beside it."""
    return np.minimum(w, limit)


def shrink(w: Floats, limit: float) -> Floats:
    """λw / (w² + λ): optimistic shrinkage (Su et al., 2020), at most √λ / 2."""
    if math.isinf(limit):
        return w
    return limit * w / (w * w + limit)


def nothing(w: Floats, _limit: float) -> Floats:
    """0: the model alone speaks."""
    return np.zeros_like(w)


WEIGHTS: Mapping[str, WeightFunction] = {
    "ips": WeightFunction("prefix", plain, for_lists=False),
    "snips": WeightFunction("prefix", plain, normalised=True),
    "clipped": WeightFunction("prefix", clip, needs_limit=True),
    "dm": WeightFunction(None, nothing, model=True),
    "dr": WeightFunction("prefix", plain, model=True, for_lists=False),
    "dr-shrinkage": WeightFunction("prefix", shrink, model=True, needs_limit=True),
    "sips": WeightFunction("joint", plain, for_single=False),
    "iips": WeightFunction("alone", plain, for_single=False),
    "rips": WeightFunction("prefix", plain, for_single=False),
    "cascade-dr": WeightFunction("prefix", plain, model=True, for_single=False),
}
"""By the estimator's name, in the order of the report. `ips` and `dr` of a list are `rips` and `cascade-dr`."""


def shown_for(slots: int) -> list[str]:
    """The estimators of a log whose lists have so many slots."""
    return [name for name, weight in WEIGHTS.items() if (weight.for_single if slots == 1 else weight.for_lists)]


def clip_limit(slates: int) -> float:
    """√n: what it drops vanishes faster than the error of the rest (Ionides, 2008)."""
    return math.sqrt(slates)
