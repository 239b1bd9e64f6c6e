"""Estimates of every reward with their intervals, or the conditions that refuse them: for a log and each slice.

A number is shown only where the ratios of the list down to each slot pass all conditions
(training/off_policy/overlap.py), and an estimator that rests on other ratios only where those do too: IIPS alone
would stand on an assumption instead of the log. A reward is judged only where it varies: an interval of no width
around a constant would be a promise that the log cannot keep. The direct method has no weights; it is shown
beside the others, without an interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from training.off_policy.direct import FOLDS, TargetChances, predict
from training.off_policy.errors import OffPolicyError
from training.off_policy.estimate import ALONE_UNKNOWN, Estimate, estimate
from training.off_policy.gathered import Gathered
from training.off_policy.inputs import LogInputs
from training.off_policy.overlap import Overlap, Refusal, overlap_of
from training.off_policy.reward_models import REWARD_MODELS
from training.off_policy.rewards import USEFULNESS
from training.off_policy.slates import Slates
from training.off_policy.spread import Shown, spread
from training.off_policy.terms import Predicted
from training.off_policy.weights import RATIOS, WEIGHTS, Ratio, shown_for

MAX_SLICES = 200
NOT_ENOUGH = "not enough overlap"
DECIDING: Ratio = "prefix"


@dataclass(frozen=True)
class JudgeConfig:
    """How to estimate.

    Args:
        reward_model: a key of REWARD_MODELS.
        draws: of the bootstrap; 0 leaves it out.
        level: share of the intervals that should cover the truth.
    """

    reward_model: str = "ridge"
    folds: int = FOLDS
    seed: int = 0
    draws: int = 1000
    level: float = 0.95


class RewardReport(msgspec.Struct, frozen=True):
    """What is known of one reward, per slate.

    Args:
        logged: what the log's own policy got.
        estimates: by estimator; none where the reward or all overlap is refused.
        not_shown: why an estimator is not among them.
        refusals: why the reward as a whole cannot be judged.
    """

    logged: Shown | None
    estimates: dict[str, Shown]
    not_shown: dict[str, str]
    refusals: list[Refusal]


class Judgement(msgspec.Struct, frozen=True):
    """Of some slates.

    Args:
        arms: different actions shown.
        verdict: `shown`, or NOT_ENOUGH where no estimate of usefulness may be shown.
        overlap: by ratio.
    """

    slates: int
    users: int
    slots: int
    arms: int
    verdict: str
    overlap: dict[str, Overlap]
    rewards: dict[str, RewardReport]

    @property
    def enough(self) -> bool:
        """Whether a number may be shown."""
        return self.verdict != NOT_ENOUGH


def judge(gathered: Gathered, config: JudgeConfig | None = None) -> tuple[Judgement, dict[str, Judgement]]:
    """The whole log, and its largest slices by name.

    Raises:
        OffPolicyError: the reward model is unknown.
    """
    config = config if config is not None else JudgeConfig()
    predicted = _predictions(gathered, config)
    every = np.arange(len(gathered.slates))
    whole = _judge(gathered, every, predicted, config, config.draws)
    largest = sorted(gathered.slices.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_SLICES]
    return whole, {name: _judge(gathered, rows, predicted, config, 0) for name, rows in sorted(largest)}


def _predictions(gathered: Gathered, config: JudgeConfig) -> dict[str, Predicted]:
    """By reward; none where no number will be shown for it anyway."""
    fit = REWARD_MODELS.get(config.reward_model)
    if fit is None:
        raise OffPolicyError(f"reward model {config.reward_model!r} is not one of {', '.join(REWARD_MODELS)}")
    slates, pools = gathered.slates, gathered.pools
    inputs, target = LogInputs(pools), TargetChances(pools.given, pools.alone)
    return {
        name: predict(slates, name, inputs, target, fit, config.folds, config.seed)
        for name in slates.rewards
        if not _constant(slates, name)
    }


def _judge(
    gathered: Gathered, rows: np.ndarray, predicted: Mapping[str, Predicted], config: JudgeConfig, draws: int
) -> Judgement:
    slates = gathered.slates.pick(rows)
    overlap = overlaps(slates)
    rewards = {}
    for name in slates.rewards:
        model = predicted.get(name)
        rewards[name] = _reward(slates, name, None if model is None else _picked(model, rows), overlap, config, draws)
    shown = gathered.pools.actions[rows[:, None], gathered.pools.shown[rows]][slates.shown]
    return Judgement(
        slates=len(slates),
        users=len(np.unique(slates.users)),
        slots=slates.slots,
        arms=len(np.unique(shown)),
        verdict="shown" if rewards[USEFULNESS].estimates else NOT_ENOUGH,
        overlap={str(name): found for name, found in overlap.items()},
        rewards=rewards,
    )


def overlaps(slates: Slates) -> dict[Ratio, Overlap]:
    """Of each ratio that an estimator of these slates rests on, where it is known."""
    names = [name for name in RATIOS if any(WEIGHTS[each].ratio == name for each in shown_for(slates.slots))]
    found = {name: RATIOS[name](slates) for name in names}
    return {name: overlap_of(w, slates.users) for name, w in found.items() if w is not None}


def _reward(
    slates: Slates,
    reward: str,
    model: Predicted | None,
    overlap: Mapping[Ratio, Overlap],
    config: JudgeConfig,
    draws: int,
) -> RewardReport:
    logged = _logged(slates, reward, config)
    if _constant(slates, reward):
        value = float(slates.rewards[reward].flat[0]) if len(slates) else None
        varies = Refusal("reward_varies", value, "a reward that is not the same everywhere")
        return RewardReport(logged, {}, {}, [varies])
    not_shown = {name: why for name in shown_for(slates.slots) if (why := _why_not(name, overlap, model))}
    names = [name for name in shown_for(slates.slots) if name not in not_shown]
    if not names:
        return RewardReport(logged, {}, not_shown, overlap[DECIDING].refusals)
    estimates = {name: estimate(name, slates, reward, model) for name in names}
    return RewardReport(logged, spread(estimates, slates.users, config.seed, draws, config.level), not_shown, [])


def _why_not(name: str, overlap: Mapping[Ratio, Overlap], model: Predicted | None) -> str | None:
    """Why an estimator may not be shown; None where it may."""
    ratio = WEIGHTS[name].ratio or DECIDING
    if ratio not in overlap or (WEIGHTS[name].ratio is None and (model is None or model.direct is None)):
        return ALONE_UNKNOWN
    failed = next((overlap[each] for each in (DECIDING, ratio) if not overlap[each].enough), None)
    if failed is None:
        return None
    return f"{NOT_ENOUGH}: {', '.join(refusal.condition for refusal in failed.refusals)}"


def _logged(slates: Slates, reward: str, config: JudgeConfig) -> Shown | None:
    """What the log's own policy got, by a weight of 1; without an interval where it never varies."""
    if not len(slates):
        return None
    totals = slates.rewards[reward].sum(axis=1)
    value = float(totals.mean())
    if _constant(slates, reward):
        return Shown(value, None, None, None, None)
    own = Estimate(value, totals - value, totals[:, None], np.ones((len(totals), 1)))
    return spread({"ips": own}, slates.users, config.seed, 0, config.level)["ips"]


def _constant(slates: Slates, reward: str) -> bool:
    """Whether all filled slots got the same."""
    values = slates.rewards[reward][slates.shown]
    return not values.size or bool(np.ptp(values) == 0.0)


def _picked(model: Predicted, rows: np.ndarray) -> Predicted:
    return Predicted(model.logged[rows], model.expected[rows], None if model.direct is None else model.direct[rows])
