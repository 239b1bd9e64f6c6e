"""The one estimator: V = Σₖ mean[Wₖ(rₖ − q̂ₖ) + Wₖ₋₁·E_new q̂ₖ], W from the table of weights.

W₀ is 1, and q̂ is 0 where the weight function uses no model. A normalised one divides Wₖ by its own mean. The
direct method is W = 0 with the target's own slots: Σₖ mean[E_new q̂ₖ].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from training.off_policy.errors import OffPolicyError
from training.off_policy.slates import Floats, Slates
from training.off_policy.weights import WEIGHTS, WeightFunction, clip_limit, shrink

LIMITS = tuple(4.0**power for power in range(11))
"""What the limit of dr-shrinkage is chosen from, and infinity (plain DR)."""


@dataclass(frozen=True)
class Predicted:
    """What a reward model says of one reward, each [slates, slots], 0 where the slot is not filled.

    Args:
        logged: q̂ of the action shown.
        expected: E q̂ over the target's choice below the list that was shown above.
        direct: E q̂ over the target's slot, whatever it shows above.
    """

    logged: Floats
    expected: Floats
    direct: Floats


@dataclass(frozen=True)
class Estimate:
    """A value with what it rests on.

    Args:
        value: of the target, per slate: the sum over its slots.
        influence: [slates], each row's share of the error: value's error is their sum over n.
        numerators, denominators: [slates, terms]; the value is Σ over terms of Σ numerators / Σ denominators.
        limit: λ, where the weight function has one.
        dropped: mean((w − λ)₊·r), of the clipped estimate.
    """

    value: float
    influence: Floats
    numerators: Floats
    denominators: Floats
    limit: float | None = None
    dropped: float | None = None


def estimate(name: str, slates: Slates, reward: str, predicted: Predicted | None = None) -> Estimate:
    """One estimate by a weight function of the table.

    Raises:
        OffPolicyError: there is nothing to estimate from, or what the function needs is not there.
    """
    weight, rewards = WEIGHTS[name], slates.rewards[reward]
    if not len(slates):
        raise OffPolicyError(f"{name}: no slate to estimate {reward} from")
    model = _model_of(name, weight, predicted)
    raw = weight.ratios(slates)
    if raw is None and weight.ratio is not None:
        raise OffPolicyError(f"{name}: the probability of a slot by itself is not known")
    w = raw if raw is not None else np.zeros_like(rewards)
    limit = _limit(name, slates, w, rewards, model) if weight.needs_limit else None
    shaped = weight.shape(w, limit or 0.0)
    if weight.normalised:
        return _ratio_estimate(shaped, rewards)
    rows = _rows(weight, shaped, rewards, model)
    value = float(rows.mean())
    dropped = float((np.maximum(w - limit, 0.0) * rewards).sum(axis=1).mean()) if name == "clipped" and limit else None
    shown_limit = None if limit is None or math.isinf(limit) else limit
    dropped = 0.0 if name == "clipped" and dropped is None else dropped
    return Estimate(value, rows - value, rows[:, None], np.ones((len(rows), 1)), shown_limit, dropped)


def _model_of(name: str, weight: WeightFunction, predicted: Predicted | None) -> Predicted | None:
    if weight.model and predicted is None:
        raise OffPolicyError(f"{name}: needs the predictions of a reward model")
    return predicted if weight.model else None


def _rows(weight: WeightFunction, shaped: Floats, rewards: Floats, model: Predicted | None) -> Floats:
    """Each slate's term [slates]."""
    if model is None:
        return np.asarray((shaped * rewards).sum(axis=1), np.float64)
    if weight.ratio is None:
        return np.asarray(model.direct.sum(axis=1), np.float64)
    above = np.concatenate([np.ones((len(shaped), 1)), shaped[:, :-1]], axis=1)
    return np.asarray((shaped * (rewards - model.logged) + above * model.expected).sum(axis=1), np.float64)


def _ratio_estimate(shaped: Floats, rewards: Floats) -> Estimate:
    """Σwr / Σw per slot, summed over slots; linearised: the error of a row is Σₖ w(r − Vₖ) / mean w."""
    means = shaped.mean(axis=0)
    if not (means > 0.0).all():
        raise OffPolicyError("snips: the target never shows what was logged: all weights are 0")
    slots = (shaped * rewards).sum(axis=0) / shaped.sum(axis=0)
    influence = (shaped * (rewards - slots) / means).sum(axis=1)
    return Estimate(float(slots.sum()), influence, shaped * rewards, shaped)


def _limit(name: str, slates: Slates, w: Floats, rewards: Floats, model: Predicted | None) -> float:
    if name == "clipped":
        return clip_limit(len(slates))
    assert model is not None, "only dr-shrinkage has another limit, and it has a model"
    return choose_shrinkage(w, rewards, model)


def choose_shrinkage(w: Floats, rewards: Floats, model: Predicted) -> float:
    """λ of least estimated squared error: variance of the mean plus the squared gap to plain DR, over a grid."""
    weight = WEIGHTS["dr-shrinkage"]
    plain_rows = _rows(weight, w, rewards, model)

    def error(limit: float) -> float:
        rows = _rows(weight, shrink(w, limit), rewards, model)
        return float(rows.var() / len(rows) + np.mean(rows - plain_rows) ** 2)

    return min((math.inf, *LIMITS), key=error)
