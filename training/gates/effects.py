"""What candidate and baseline would have brought the people of the log, off-policy: the change, paired by ranking."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from features.known import Moment
from features.priors import prior_of
from ranker.propensity import Exploration
from training.gates.arms import Arm, VersionArm
from training.gates.evidence import CLICKS, COMPLETIONS, DISMISSALS, Effect
from training.intervals import clustered_se
from training.off_policy.errors import OffPolicyError
from training.off_policy.estimate import estimate
from training.off_policy.gather import LogView, gather
from training.off_policy.gathered import Gathered
from training.off_policy.judge import DECIDING, NOT_ENOUGH, overlaps
from training.off_policy.slates import Slates
from training.off_policy.targets import Scoring, Version

REWARD: Mapping[str, str] = {CLICKS: "accepts", COMPLETIONS: "completions", DISMISSALS: "dismissals"}
"""The reward that stands for an outcome; reuse has none."""
ESTIMATOR = "snips"


@dataclass(frozen=True)
class _PriorScores:
    """The priors as something that scores."""

    def score(self, moment: Moment) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        return np.zeros((len(moment.actions), 0), np.float32), np.asarray(prior_of(moment), np.float64)


@dataclass(frozen=True)
class OffPolicyPlan:
    """By what log, from when on, and how both versions would draw."""

    logdir: Path
    view: LogView
    since_s: float
    exploration: Exploration
    level: float


def effects(
    arms: tuple[Arm, Arm], plan: OffPolicyPlan, progress: Callable[[int], None] = lambda _: None
) -> tuple[dict[str, Effect], str]:
    """By outcome; or none, and why the log cannot carry them."""
    scorings = [_scoring(arm) for arm in arms]
    if any(scoring is None for scoring in scorings):
        return {}, "a second stage is not judged off-policy"
    try:
        gathered = [
            _gathered(scoring, arm, plan, progress)
            for scoring, arm in zip(scorings, arms, strict=True)
            if scoring is not None
        ]
    except OffPolicyError as error:
        return {}, str(error)
    slates = [each.slates for each in gathered]
    for arm, each in zip(arms, slates, strict=True):
        found = overlaps(each)[DECIDING]
        if not found.enough:
            return {}, f"{NOT_ENOUGH} for {arm.name}: {', '.join(refusal.condition for refusal in found.refusals)}"
    return {name: _effect(slates, reward, plan.level) for name, reward in REWARD.items()}, ""


def _scoring(arm: Arm) -> Scoring | None:
    if not isinstance(arm, VersionArm):
        return _PriorScores()
    return arm.light if arm.second is None else None


def _gathered(scoring: Scoring, arm: Arm, plan: OffPolicyPlan, progress: Callable[[int], None]) -> Gathered:
    target = Version(scoring, plan.exploration, arm.name)
    return gather(plan.logdir, target, plan.exploration, progress, plan.view, plan.since_s)


def _effect(slates: list[Slates], reward: str, level: float) -> Effect:
    """SNIPS of both on the same rankings: their errors move together, and much of them cancels."""
    ours, theirs = (estimate(ESTIMATOR, each, reward) for each in slates)
    error = clustered_se(ours.influence - theirs.influence, slates[0].users, small=False)
    mean, reach = ours.value - theirs.value, float(ndtri((1.0 + level) / 2.0)) * error
    return Effect(mean, mean - reach, mean + reach) if math.isfinite(reach) else Effect(mean, -math.inf, math.inf)
