"""Is more data worth its price? Rows × exploration share → true quality, with what each cost.

One simulated log per share; each size is its end, so all versions are judged on the same later scenes, by the
simulated people's true needs. What a doubling brought is a paired difference with its interval by user.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from features.events import ActionEvent, Event, UserEvent, encode_event
from features.log import LogWriter
from ranker.config import TrainConfig, TreesSettings
from ranker.light_model import LightModel
from training.bench.truth import DEPTH, TrueQuality, World, shown_quality, true_quality
from training.intervals import Interval, paired_interval
from training.light import train_light
from training.simulate import START_S, Exploration, Simulator

DAY_S = 86400.0


@dataclass(frozen=True)
class CurvePlan:
    """What to simulate and to learn from.

    Args:
        shares: of rankings that explore.
        days: that are learned from, rising; each judged on the `judged_days` that follow.
        worth: least NDCG that a doubling must bring to be worth its price.
    """

    users: int = 200
    shares: tuple[float, ...] = (0.0, 0.05, 0.3)
    days: tuple[int, ...] = (2, 4, 8, 16)
    judged_days: int = 4
    worth: float = 0.005
    seed: int = 1
    config: TrainConfig = field(default_factory=lambda: TrainConfig(trees=TreesSettings(threads=1)))

    def __post_init__(self) -> None:
        if not self.shares or not self.days or sorted(set(self.days)) != list(self.days) or self.days[0] < 1:
            raise ValueError(f"shares {self.shares} and days {self.days} must be there, and days rise from 1 on")

    @property
    def since_s(self) -> float:
        """Where judging begins."""
        return START_S + self.days[-1] * DAY_S


def quick(seed: int = 1) -> CurvePlan:
    """Two shares, two doublings, fewer people: about a minute."""
    return CurvePlan(users=120, shares=(0.05, 0.3), days=(2, 4, 8), judged_days=3, seed=seed)


@dataclass(frozen=True)
class Cell:
    """A version learned from so much.

    Args:
        cpu_s: of reading and learning, not of simulating and judging.
    """

    share: float
    days: int
    events: int
    rankings: int
    queries: int
    cpu_s: float
    quality: TrueQuality

    def to_json(self) -> dict[str, Any]:
        """Without the single scenes."""
        return {
            "exploration": self.share,
            "days": self.days,
            "events": self.events,
            "rankings": self.rankings,
            "queries": self.queries,
            "cpu_s": round(self.cpu_s, 2),
            "true_ndcg": self.quality.mean,
        }


def bench_curve(plan: CurvePlan | None = None, progress: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Cells, what each step from one size to the next brought, and whether that was worth it."""
    plan = plan or CurvePlan()
    cells: dict[float, list[Cell]] = {}
    shown: dict[float, float] = {}
    for share in plan.shares:
        progress(f"simulate {share:g}")
        simulator = Simulator(plan.seed, users=plan.users, days=plan.days[-1] + plan.judged_days)
        world = World.simulate(simulator, Exploration(share))
        shown[share] = shown_quality(world)
        cells[share] = [_cell(plan, world, share, days, progress) for days in plan.days]
    steps = [step for row in cells.values() for step in _steps(plan, row)]
    return {
        "metric": f"true NDCG@{DEPTH} on the {plan.judged_days} days after",
        "users": plan.users,
        "judged_scenes": len(cells[plan.shares[0]][0].quality.values),
        "cells": [cell.to_json() for row in cells.values() for cell in row],
        "steps": steps,
        "shown_while_logging": {f"{share:g}": value for share, value in shown.items()},
        "worth": plan.worth,
        "answers": [step["answer"] for step in steps if step["last"]],
        "seed": plan.seed,
    }


def _cell(plan: CurvePlan, world: World, share: float, days: int, progress: Callable[[str], None]) -> Cell:
    progress(f"learn {share:g}, {days} days")
    start_s = plan.since_s - days * DAY_S
    with TemporaryDirectory(prefix="nextaction-curve-") as folder:
        log = Path(folder) / "log"
        _write(log, [event for event in world.events if event.time_s >= start_s or _is_setup(event)])
        started_s = time.process_time()
        trained = train_light(log, plan.since_s, config=plan.config)
        cpu_s = time.process_time() - started_s
        light = LightModel.load(_InMemory(trained.files), "curve", trained.schema, trained.files)
        quality = true_quality(log, world.scenes, lambda moment: light.score(moment)[1], plan.since_s)
    data = trained.data
    return Cell(share, days, data["events"], data["rankings"], data["queries"], cpu_s, quality)


def _steps(plan: CurvePlan, row: Sequence[Cell]) -> list[dict[str, Any]]:
    found = []
    for smaller, larger in pairwise(row):
        doublings = float(np.log2(larger.events / smaller.events))
        gained = paired_interval(larger.quality.values, smaller.quality.values, larger.quality.clusters, plan.seed)
        found.append(_step(plan, smaller, larger, doublings, gained) | {"last": larger is row[-1]})
    return found


def _step(plan: CurvePlan, smaller: Cell, larger: Cell, doublings: float, gained: Interval) -> dict[str, Any]:
    bounds = (gained.mean, gained.low, gained.high)
    mean, low, high = (None if bound is None else bound / doublings for bound in bounds)
    seconds = (larger.cpu_s - smaller.cpu_s) / doublings
    verdict = "unclear"
    if low is not None and low >= plan.worth:
        verdict = "yes"
    elif high is not None and high < plan.worth:
        verdict = "no"
    limits = "unknown" if low is None else f"{low:+.4f} to {high:+.4f}"
    return {
        "exploration": larger.share,
        "events": [smaller.events, larger.events],
        "per_doubling": {"mean": mean, "low": low, "high": high, "cpu_s": round(seconds, 2)},
        "worth_it": verdict,
        "answer": (
            f"at {larger.share:.0%} exploration, doubling {smaller.events:,} events brings {mean or 0.0:+.4f} NDCG "
            f"({limits}) for {seconds:.1f} s: {verdict}, with {plan.worth:g} as what it must bring"
        ),
    }


def _is_setup(event: Event) -> bool:
    return isinstance(event, ActionEvent | UserEvent)


def _write(log: Path, events: Sequence[Event]) -> None:
    with LogWriter.open(log) as writer:
        writer.append([encode_event(event) for event in events])


@dataclass(frozen=True)
class _InMemory:
    """Files of a version that is not published."""

    files: dict[str, bytes]

    def read(self, version: str, name: str) -> bytes:  # noqa: ARG002  # there is one only
        return self.files[name]
