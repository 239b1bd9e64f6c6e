"""Three gates of trained versions on a simulated log: an identical one, one that is hurt in a slice, a better one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from features.events import Event
from ranker.release.registry import Registry
from tests.training.gates.conftest import DAY_S, QUICK, simulated
from training.gates.arms import Arm, load_arm
from training.gates.finding import Finding, reasons_of
from training.gates.gate import GateReport, GateRequest, judge_arms
from training.light import train_light
from training.publish import publish
from training.queries import Query, context_of
from training.simulate import START_S

pytestmark = pytest.mark.slow
HURT = "share_opened"
"""A trigger of about 5 % of the queries."""


@dataclass(frozen=True)
class HurtInSlice:
    """A version that puts the worst first in one slice."""

    arm: Arm
    name: str = "hurt"

    def follow(self, offset: int, event: Event) -> None:
        self.arm.follow(offset, event)

    def score(self, query: Query) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        vectors, scores = self.arm.score(query)
        trigger = context_of(query.decision.event).trigger
        return vectors, -scores if trigger is not None and trigger.type == HURT else scores


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Registry]:
    """A log of 225 people in 14 days; version 1 learned from half a day, version 2 from eight days."""
    folder = tmp_path_factory.mktemp("real")
    log, registry = simulated(folder / "log", 225, 14), Registry(folder / "models")
    for days in (0.5, 8.0):
        publish(registry, train_light(log, START_S + days * DAY_S, hint=False, config=QUICK), QUICK)
    return log, registry


def judged(place: tuple[Path, Registry], candidate: str, baseline: str, *, hurt: bool = False) -> GateReport:
    log, registry = place
    ours, manifest = load_arm(registry, candidate)
    theirs, _ = load_arm(registry, baseline)
    request = GateRequest(registry, log, candidate, baseline, START_S + 8.0 * DAY_S, off_policy=False)
    return judge_arms(request, manifest, (HurtInSlice(ours) if hurt else ours, theirs))


def named(report: GateReport, rule: str) -> Finding:
    return next(finding for finding in report.findings if finding.rule == rule)


def test_an_identical_version_is_not_stopped(place: tuple[Path, Registry]) -> None:
    report = judged(place, "2", "2")
    assert report.verdict != "stop", reasons_of(report.findings)
    assert named(report, "slices").verdict == "ship"


def test_a_version_hurt_in_one_slice_is_stopped_for_that_slice(place: tuple[Path, Registry]) -> None:
    report = judged(place, "2", "2", hurt=True)
    slices = named(report, "slices")
    assert (report.verdict, slices.code) == ("stop", "slice_regression")
    stopping = [name for name, each in slices.figures["slices"].items() if each["state"] == "slice_regression"]
    assert f"trigger={HURT}" in stopping
    share = slices.figures["slices"][f"trigger={HURT}"]["queries"] / report.judged.queries
    assert 0.02 < share < 0.09


def test_a_better_version_is_not_stopped_and_its_gain_is_seen(place: tuple[Path, Registry]) -> None:
    report = judged(place, "2", "1")
    assert report.verdict != "stop", reasons_of(report.findings)
    assert named(report, "quality_and_cost").figures["ndcg@10"]["low"] > 0.0
