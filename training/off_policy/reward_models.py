"""Models of a slot's reward in one table: ridge regression, and LightGBM's trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import lightgbm
import numpy as np

from training.off_policy.slates import Floats

Predictor = Callable[[Floats], Floats]
"""From inputs [rows, columns] to expected rewards [rows]."""

Fit = Callable[[Floats, Floats], Predictor]
"""From inputs [rows, columns] and rewards [rows], both finite, to a predictor."""

RIDGE = 10.0
_ROUNDS = 60
_TREES: dict[str, Any] = {
    "objective": "regression",
    "num_leaves": 7,
    "learning_rate": 0.1,
    "min_data_in_leaf": 50,
    "lambda_l2": 10.0,
    "num_threads": 1,
    "seed": 0,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


def fit_ridge(inputs: Floats, rewards: Floats) -> Predictor:
    """Least squares with a penalty on all but the mean; columns of 0 and 1 share their strength with the mean."""
    if not len(inputs):
        return _zero
    centre, mean = inputs.mean(axis=0), float(rewards.mean())
    rows = inputs - centre
    penalty = RIDGE * np.eye(rows.shape[1])
    slope = np.linalg.solve(rows.T @ rows + penalty, rows.T @ (rewards - mean))

    def predict(asked: Floats) -> Floats:
        return np.asarray(mean + (asked - centre) @ slope, np.float64)

    return predict


def fit_trees(inputs: Floats, rewards: Floats) -> Predictor:
    """A few small trees: what depends on action and context together."""
    if len(inputs) < 2 * int(_TREES["min_data_in_leaf"]) or np.ptp(rewards) == 0.0:
        return fit_ridge(inputs, rewards)
    trees = lightgbm.train(_TREES, lightgbm.Dataset(inputs, rewards, free_raw_data=True), _ROUNDS)

    def predict(asked: Floats) -> Floats:
        return np.asarray(trees.predict(asked, num_threads=1), np.float64)

    return predict


def _zero(asked: Floats) -> Floats:
    """Nothing was there to learn from."""
    return np.zeros(len(asked))


REWARD_MODELS: Mapping[str, Fit] = {"ridge": fit_ridge, "trees": fit_trees}
