"""How often 95 % intervals cover a truth that is known: for every estimator that is shown, in many runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.off_policy.direct import TargetChances, predict
from training.off_policy.estimate import estimate
from training.off_policy.judge import DECIDING, overlaps
from training.off_policy.reward_models import fit_ridge
from training.off_policy.simulated import REWARD, Visits, World, draw_visits, world
from training.off_policy.slates import Floats
from training.off_policy.spread import Shown, spread
from training.off_policy.weights import WEIGHTS, shown_for

LOW, HIGH = 0.92, 0.98
SLOTS = (1, 2)


@dataclass(frozen=True)
class CoveragePlan:
    """How many runs of each world, and how many draws the bootstrap has in each."""

    runs: int = 2000
    draws: int = 400
    seed: int = 0


@dataclass(frozen=True)
class _Inputs:
    """The run's inputs under the names that the reward model asks for."""

    visits: Visits

    @property
    def cells(self) -> int:
        """Numbers per slate of `pool`."""
        return self.visits.cells

    def shown(self, rows: NDArray[np.int64]) -> Floats:
        """Of what was shown."""
        return self.visits.shown_inputs(rows)

    def pool(self, rows: NDArray[np.int64]) -> Floats:
        """Of all actions."""
        return self.visits.pool(rows)


def bench_coverage(plan: CoveragePlan, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Per length of list and estimator: the share of runs whose interval covers the truth, and the mean figures.

    In a run whose weights an estimator may not rest on it shows no number; `shown` counts the others.
    """
    report: dict[str, Any] = {"runs": plan.runs, "level": 0.95, "wanted": [LOW, HIGH], "slots": {}}
    done = 0
    for slots in SLOTS:
        place = world(plan.seed, slots)
        found: dict[str, list[Shown]] = {name: [] for name in shown_for(slots)}
        for run in range(plan.runs):
            for name, shown in _run(place, plan.seed * 1_000_003 + run, plan.draws).items():
                found[name].append(shown)
            done += 1
            if progress is not None:
                progress(done, plan.runs * len(SLOTS))
        figures = {name: _figure(each, place.truth()) for name, each in found.items()}
        report["slots"][str(slots)] = {"truth": place.truth(), "estimators": figures}
    every = [each for length in report["slots"].values() for each in length["estimators"].values()]
    report["ok"] = all(map(_within, every))
    return report


def _run(place: World, seed: int, draws: int) -> dict[str, Shown]:
    visits = draw_visits(place, seed)
    enough = {name for name, found in overlaps(visits.slates).items() if found.enough}
    target = TargetChances(visits.given, visits.alone)
    predicted = predict(visits.slates, REWARD, _Inputs(visits), target, fit_ridge, seed=seed)
    names = [name for name in shown_for(place.slots) if {DECIDING, WEIGHTS[name].ratio or DECIDING} <= enough]
    estimates = {name: estimate(name, visits.slates, REWARD, predicted) for name in names}
    return spread(estimates, visits.slates.users, seed, draws)


def _figure(found: list[Shown], truth: float) -> dict[str, float | None]:
    """Of one estimator; one without an interval covers nothing, and has only its error."""
    errors = np.array([each.value for each in found]) - truth
    bounds = [(each.low, each.high) for each in found if each.low is not None and each.high is not None]
    return {
        "shown": len(found),
        "bias": float(errors.mean()) if len(found) else None,
        "error": float(np.sqrt(np.mean(errors**2))) if len(found) else None,
        "coverage": _covered(bounds, truth),
        "bootstrap_coverage": _covered([each.bootstrap for each in found if each.bootstrap], truth),
    }


def _covered(bounds: list[tuple[float, float]], truth: float) -> float | None:
    return float(np.mean([low <= truth <= high for low, high in bounds])) if bounds else None


def _within(figures: dict[str, float | None]) -> bool:
    """Whether both intervals cover as often as they should; without one there is nothing to hold."""
    shares = [figures[name] for name in ("coverage", "bootstrap_coverage")]
    return all(share is None or LOW <= share <= HIGH for share in shares)
