"""The digits as a bandit problem: the published relative errors."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from training.off_policy.direct import TargetChances, predict
from training.off_policy.estimate import estimate
from training.off_policy.reward_models import fit_ridge
from training.off_policy.slates import Floats, Slates

datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn, of the test extra, is not installed")

RUNS, LEARNED = 30, 539
"""Of 1,797 digits three tenths teach both policies, as in the example of the Open Bandit Pipeline."""


@dataclass(frozen=True)
class Digits:
    """Pixels [rows, 64] and the digit named in each."""

    pixels: Floats
    named: NDArray[np.int64]
    cells: int = 10 * 74

    def shown(self, rows: NDArray[np.int64]) -> Floats:
        return np.concatenate([self.pixels[rows], np.eye(10)[self.named[rows]]], axis=1)[:, None]

    def pool(self, rows: NDArray[np.int64]) -> Floats:
        pixels = np.broadcast_to(self.pixels[rows][:, None], (len(rows), 10, 64))
        return np.concatenate([pixels, np.broadcast_to(np.eye(10), (len(rows), 10, 10))], axis=2)[:, None]


def test_relative_errors_are_those_published() -> None:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    pixels, digits = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    learned, judged = order[:LEARNED], order[LEARNED:]
    pixels = pixels / 16.0
    logging = LogisticRegression(C=0.1, max_iter=200).fit(pixels[learned], digits[learned])
    forest = RandomForestClassifier(30, random_state=0).fit(pixels[learned], digits[learned])
    log = 0.4 * np.eye(10)[logging.predict(pixels[judged])] + 0.6 / 10
    target = 0.9 * np.eye(10)[forest.predict(pixels[judged])] + 0.1 / 10
    rows, right = np.arange(len(judged)), digits[judged]
    truth = target[rows, right].mean()
    errors = defaultdict(list)
    for run in range(RUNS):
        draws = np.random.default_rng(run).random(len(rows))
        named = np.minimum((np.cumsum(log, axis=1) < draws[:, None]).sum(axis=1), 9)
        rewards = {"right": (named == right).astype(float)[:, None]}
        chances = log[rows, named][:, None], target[rows, named][:, None]
        slates = Slates(rows, *chances, np.ones((len(rows), 1), np.bool_), rewards)
        given = TargetChances(target[:, None], target[:, None])
        predicted = predict(slates, "right", Digits(pixels[judged], named), given, fit_ridge, seed=run)
        for name in ("ips", "snips", "dm", "dr"):
            errors[name].append(abs(estimate(name, slates, "right", predicted).value - truth) / truth)
    found = {name: float(np.mean(each)) for name, each in errors.items()}
    assert found["ips"] <= 0.04 and found["snips"] <= 0.03 and found["dr"] <= 0.03, found
    assert found["dm"] > 0.3, "a model that cannot see which digit is named right is clearly worse"
