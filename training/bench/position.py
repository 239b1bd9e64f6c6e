"""What position bias costs, and what each way of learning gets back, where the truth is known.

`nextaction bench position`: lists under an exact position-based model (training/simulated/position_based.py);
every way learns LambdaMART on the same features, and is judged by NDCG of true relevance on fresh lists.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import lightgbm
import msgspec
import numpy as np
from numpy.typing import NDArray

from training.metrics import ndcg, paired_interval
from training.position import PositionError, Propensities, ShuffledSlots, item_weights, position_ids
from training.simulated.position_based import PositionLog, PositionWorld, draw_lists

Floats = NDArray[np.float64]
NAIVE, MODEL, ORACLE = "naive", "position, regularisation 0", "oracle"
ORACLE_GRADES = 16


@dataclass(frozen=True)
class PositionPlan:
    """How much to simulate; `judged` fresh lists."""

    world: PositionWorld = field(default_factory=PositionWorld)
    judged: int = 2000
    rounds: int = 100
    leaves: int = 15
    clip: float = 10.0
    seed: int = 1
    threads: int = 1


def quick(plan: PositionPlan, slates: int = 5000) -> PositionPlan:
    """The same with fewer lists, fewer rounds and more exploration, so that θ can still be estimated."""
    return replace(plan, world=replace(plan.world, slates=slates, shuffled=0.2), judged=600, rounds=60)


def bench_position(
    plan: PositionPlan | None = None, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """The table of ways with their true NDCG, against the oracle, and θ as estimated."""
    plan = plan or PositionPlan()
    rng = np.random.default_rng([plan.seed, 1])
    log = draw_lists(rng, plan.world)
    fresh = draw_lists(rng, replace(plan.world, slates=plan.judged))
    estimated = estimate(log)
    values: dict[str, Floats] = {}
    seconds: dict[str, float] = {}
    for name, learn in ways(plan, log, estimated).items():
        progress(name)
        started_s = time.process_time()
        values[name] = _judge(learn(), fresh)
        seconds[name] = round(time.process_time() - started_s, 2)
    return _report(plan, values, seconds, estimated)


def estimate(log: PositionLog) -> Propensities | str:
    """θ from the shuffled lists, or why not."""
    slots = ShuffledSlots()
    for useful in log.useful[log.shuffled]:
        slots.add_shuffled(useful.tolist())
    try:
        return slots.estimate()
    except PositionError as error:
        return str(error)


def ways(plan: PositionPlan, log: PositionLog, estimated: Propensities | str) -> dict[str, Callable[[], Any]]:
    """How each way learns from the same log."""
    positions, useful = log.positions.ravel(), log.useful.ravel()
    everything = np.ones(len(log.useful), np.bool_)

    def model(regularization: float) -> Callable[[], Any]:
        ids = position_ids(positions)
        extra = {"lambdarank_position_bias_regularization": regularization}
        return lambda: _fit(plan, log, everything, useful, position=ids, extra=extra)

    found: dict[str, Callable[[], Any]] = {
        NAIVE: lambda: _fit(plan, log, everything, useful),
        MODEL: model(0.0),
        "position, regularisation 0.1": model(0.1),
    }
    if not isinstance(estimated, str):
        weights = item_weights(positions, useful, estimated, plan.clip).weights
        found["weights 1/θ"] = lambda: _fit(plan, log, everything, useful, weight=weights)
    smaller = replace(plan, leaves=max(2, plan.leaves // 2 + 1))  # for a twentieth of the lists
    found["shuffled lists only"] = lambda: _fit(smaller, log, log.shuffled, log.useful[log.shuffled].ravel())
    best = (log.relevance * ORACLE_GRADES).astype(np.int64).ravel()
    found[ORACLE] = lambda: _fit(plan, log, everything, best, gains=list(range(ORACLE_GRADES + 1)))
    return found


def _fit(
    plan: PositionPlan,
    log: PositionLog,
    lists: NDArray[np.bool_],
    grades: NDArray[np.int64],
    *,
    position: NDArray[np.int32] | None = None,
    weight: Floats | None = None,
    gains: list[int] | None = None,
    extra: dict[str, Any] | None = None,
) -> Any:
    features = log.features[lists].reshape(-1, log.features.shape[2])
    groups = [log.useful.shape[1]] * int(lists.sum())
    dataset = lightgbm.Dataset(features, grades, group=groups, position=position, weight=weight)
    parameters = {
        "objective": "lambdarank",
        "num_leaves": plan.leaves,
        "learning_rate": 0.1,
        "min_data_in_leaf": 50,
        "label_gain": gains or [0, 1],
        "lambdarank_truncation_level": log.useful.shape[1],
        "num_threads": plan.threads,
        "seed": plan.seed,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    return lightgbm.train(parameters | (extra or {}), dataset, plan.rounds)


def _judge(booster: Any, fresh: PositionLog) -> Floats:
    shape = fresh.relevance.shape
    scores = booster.predict(fresh.features.reshape(-1, fresh.features.shape[2])).reshape(shape)
    found = [ndcg(row, truth, None) for row, truth in zip(scores, fresh.relevance, strict=True)]
    return np.array(found, np.float64)


def _report(
    plan: PositionPlan, values: dict[str, Floats], seconds: dict[str, float], estimated: Propensities | str
) -> dict[str, Any]:
    best = values[ORACLE]
    lists = list(range(len(best)))
    table = {}
    for name, figures in values.items():
        gap = paired_interval(figures, best, lists, plan.seed)
        table[name] = {
            "true_ndcg": float(figures.mean()),
            "of_oracle": float(figures.mean() / best.mean()),
            "minus_oracle": {"mean": gap.mean, "low": gap.low, "high": gap.high},
            "cpu_s": seconds[name],
        }
    theta: list[dict[str, Any]] = []
    if not isinstance(estimated, str):
        truth = plan.world.theta / plan.world.theta[0]
        theta = [{**msgspec.to_builtins(rate), "true": float(truth[rate.position - 1])} for rate in estimated.rates]
    return {
        "slates": plan.world.slates,
        "shuffled_share": plan.world.shuffled,
        "judged": plan.judged,
        "ways": table,
        "theta": theta,
        "theta_unknown": estimated if isinstance(estimated, str) else None,
        "seed": plan.seed,
    }
