"""Reward models and their cross-fitting."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.off_policy.small import slates
from training.off_policy.direct import TargetChances, folds_of, predict
from training.off_policy.reward_models import REWARD_MODELS, RIDGE, Predictor, fit_ridge
from training.off_policy.slates import Floats


@dataclass
class Columns:
    """Inputs [slates, slots, pool, columns], of which the first of each pool was shown."""

    table: Floats
    cells: int = 1
    asked: list[int] = field(default_factory=list)

    def shown(self, rows: NDArray[np.int64]) -> Floats:
        return self.table[rows][:, :, 0]

    def pool(self, rows: NDArray[np.int64]) -> Floats:
        self.asked += rows.tolist()
        return self.table[rows]


def test_ridge_is_least_squares_with_a_penalty() -> None:
    rng = np.random.default_rng(0)
    inputs, rewards = rng.normal(size=(200, 3)), rng.normal(size=200)
    centred, about = inputs - inputs.mean(axis=0), rewards - rewards.mean()
    augmented = np.vstack([centred, np.sqrt(RIDGE) * np.eye(3)])
    slope, *_ = np.linalg.lstsq(augmented, np.concatenate([about, np.zeros(3)]), rcond=None)
    asked = rng.normal(size=(5, 3))
    assert fit_ridge(inputs, rewards)(asked) == pytest.approx(rewards.mean() + (asked - inputs.mean(axis=0)) @ slope)


@pytest.mark.parametrize("name", list(REWARD_MODELS))
def test_every_reward_model_learns_a_step_and_bears_nothing_to_learn(name: str) -> None:
    inputs = np.repeat(np.eye(2), 400, axis=0)
    rewards = np.repeat([0.2, 0.8], 400)
    found = REWARD_MODELS[name](inputs, rewards)(np.eye(2))
    assert found == pytest.approx([0.2, 0.8], abs=0.03)
    assert REWARD_MODELS[name](inputs, np.full(800, 0.5))(np.eye(2)) == pytest.approx([0.5, 0.5])
    assert REWARD_MODELS[name](np.zeros((0, 2)), np.zeros(0))(np.eye(2)) == pytest.approx([0.0, 0.0])


def test_a_users_rewards_never_teach_the_model_that_predicts_them() -> None:
    users = np.repeat(np.arange(12), 3)
    rows = slates([[0.5]] * 36, [[0.5]] * 36, [[float(user)] for user in users], users.tolist())
    taught: list[set[float]] = []

    def remember(_inputs: Floats, rewards: Floats) -> Predictor:
        taught.append(set(rewards.tolist()))
        fold = float(len(taught))
        return lambda asked: np.full(len(asked), fold)

    chances = TargetChances(np.ones((36, 1, 1)), np.ones((36, 1, 1)))
    found = predict(rows, "r", Columns(np.zeros((36, 1, 1, 1))), chances, remember, folds=4)
    for user, model in zip(users, found.logged[:, 0].astype(int), strict=True):
        assert float(user) not in taught[model - 1]
    assert sorted(map(len, taught)) == [9, 9, 9, 9]


def test_a_user_is_in_one_fold_and_folds_are_even() -> None:
    users = np.random.default_rng(1).integers(0, 40, 500)
    folds = folds_of(users, 4, 0)
    assert all(len(np.unique(folds[users == user])) == 1 for user in np.unique(users))
    assert {len(np.unique(users[folds == fold])) for fold in range(4)} == {10}


def test_expectations_are_over_the_targets_chances_and_chunks_change_nothing() -> None:
    table = np.random.default_rng(2).normal(size=(30, 2, 3, 1))
    given, alone = np.full((30, 2, 3), 1 / 3), np.tile([1.0, 0.0, 0.0], (30, 2, 1))
    rows = slates([[0.5, 0.5]] * 30, [[0.5, 0.5]] * 30, [[1.0, 0.0]] * 30)

    def same(_inputs: Floats, _rewards: Floats) -> Predictor:
        return lambda asked: asked[:, 0]

    inputs = Columns(table)
    found = predict(rows, "r", inputs, TargetChances(given, alone), same)
    assert found.expected == pytest.approx(table.mean(axis=(2, 3)))
    assert found.direct == pytest.approx(table[:, :, 0, 0])
    assert found.logged == pytest.approx(table[:, :, 0, 0])
    chunked = predict(rows, "r", Columns(table, cells=10**9), TargetChances(given, None), same)
    assert chunked.expected == pytest.approx(found.expected) and chunked.direct is None
    assert sorted(inputs.asked) == list(range(30))


def test_one_user_gets_predictions_from_nobody() -> None:
    rows = slates([[0.5]] * 5, [[0.5]] * 5, [[1.0]] * 5, [0] * 5)
    chances = TargetChances(np.ones((5, 1, 1)), None)
    assert not predict(rows, "r", Columns(np.ones((5, 1, 1, 1))), chances, fit_ridge).logged.any()
