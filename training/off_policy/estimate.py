"""The one estimator over the table of weights: V = Σₖ mean[Wₖ(rₖ − q̂ₖ) + Wₖ₋₁·E_new q̂ₖ].

A normalised weight function divides Wₖ by its own mean. The direct method has no weights: Σₖ mean[E_new q̂ₖ].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from training.off_policy.errors import OffPolicyError
from training.off_policy.slates import Floats, Slates
from training.off_policy.terms import Predicted, slate_terms
from training.off_policy.weights import WEIGHTS, clip

ALONE_UNKNOWN = "the probability of an action in a slot, whatever is above it, is not known"


@dataclass(frozen=True)
class Estimate:
    """A value with what it rests on.

    Args:
        value: of the target, per slate: the sum over its slots.
        influence: [slates]; the value's error is their mean.
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
    model = _model(name, predicted) if weight.model else None
    if weight.ratio is None:
        assert model is not None and model.direct is not None, "the direct method has a model"
        return _mean_estimate(model.direct.sum(axis=1))
    w = weight.ratios(slates)
    if w is None:
        raise OffPolicyError(f"{name}: {ALONE_UNKNOWN}")
    limit = weight.limit(len(slates)) if weight.limit is not None else math.inf
    used = weight.shape(w, limit)
    if weight.normalised:
        return _ratio_estimate(name, used, rewards)
    dropped = float(((w - used) * rewards).sum(axis=1).mean()) if weight.shape is clip else None
    return _mean_estimate(slate_terms(used, rewards, model), None if math.isinf(limit) else limit, dropped)


def _model(name: str, predicted: Predicted | None) -> Predicted:
    if predicted is None:
        raise OffPolicyError(f"{name}: needs the predictions of a reward model")
    if WEIGHTS[name].ratio is None and predicted.direct is None:
        raise OffPolicyError(f"{name}: {ALONE_UNKNOWN}")
    return predicted


def _mean_estimate(terms: Floats, limit: float | None = None, dropped: float | None = None) -> Estimate:
    value = float(terms.mean())
    return Estimate(value, terms - value, terms[:, None], np.ones((len(terms), 1)), limit, dropped)


def _ratio_estimate(name: str, used: Floats, rewards: Floats) -> Estimate:
    """Σwr / Σw per slot, summed over slots; linearised, the error of a row is Σₖ w(r − Vₖ) / mean w."""
    totals = used.sum(axis=0)
    if not (totals > 0.0).all():
        raise OffPolicyError(f"{name}: the target never shows what was logged: all weights are 0")
    slots = (used * rewards).sum(axis=0) / totals
    influence = (used * (rewards - slots) / (totals / len(used))).sum(axis=1)
    return Estimate(float(slots.sum()), influence, used * rewards, used)
