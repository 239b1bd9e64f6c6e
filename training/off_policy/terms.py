"""Each slate's term of an estimate: Σₖ Wₖ(rₖ − q̂ₖ) + Wₖ₋₁·E_new q̂ₖ, with W₀ = 1, and q̂ = 0 without a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.off_policy.slates import Floats


@dataclass(frozen=True)
class Predicted:
    """What a reward model says of one reward, each [slates, slots], 0 where the slot is not filled.

    Args:
        logged: q̂ of the action shown.
        expected: E q̂ over the target's choice below the list that was shown above.
        direct: E q̂ over the target's slot, whatever it shows above; None where that is not known.
    """

    logged: Floats
    expected: Floats
    direct: Floats | None


def slate_terms(weights: Floats, rewards: Floats, model: Predicted | None) -> Floats:
    """The terms [slates] of weights and rewards [slates, slots]."""
    if model is None:
        return np.asarray((weights * rewards).sum(axis=1), np.float64)
    above = np.concatenate([np.ones((len(weights), 1)), weights[:, :-1]], axis=1)
    return np.asarray((weights * (rewards - model.logged) + above * model.expected).sum(axis=1), np.float64)
