"""A small simulated log with two versions that learned from its first days."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from features.events import Event, encode_event
from features.log import LogWriter
from ranker.config import SampleSettings, TextSettings, TrainConfig, TreesSettings
from ranker.release.registry import Registry
from tests.command_line import Nextaction
from training.light import train_light
from training.publish import publish
from training.simulate import START_S, Simulator

DAY_S = 86400.0
QUICK = TrainConfig(
    sample=SampleSettings(folds=2), text=TextSettings(epochs=1), trees=TreesSettings(rounds=8, min_data_in_leaf=40)
)


@dataclass(frozen=True)
class Place:
    """A log, a registry, and where what was learned from ends."""

    log: Path
    models: Path
    until_s: float

    @property
    def registry(self) -> Registry:
        return Registry(self.models)


def simulated(folder: Path, users: int, days: int, change: Callable[[Event], Event] = lambda event: event) -> Path:
    """The log of a simulated assistant."""
    events = Simulator(3, users, days).events()
    with LogWriter.open(folder) as writer:
        writer.append([encode_event(change(event)) for event in events])
    return folder


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Versions 1 (four days), 2 (two days) and 3 (the same files as 1) of 40 people."""
    folder = tmp_path_factory.mktemp("gated")
    log, registry = simulated(folder / "log", 40, 7), Registry(folder / "models")
    for days in (4, 2):
        publish(registry, train_light(log, START_S + days * DAY_S, hint=False, config=QUICK), QUICK)
    first = registry.manifest("1")
    files = {name: registry.read("1", name) for name in first.files}
    registry.publish(files, schema=first.schema, data=first.data, extra=first.extra)
    return Place(log, folder / "models", START_S + 4 * DAY_S)


@pytest.fixture
def easy(tmp_path: Path) -> Path:
    """Thresholds that a small log can meet."""
    path = tmp_path / "gates.yaml"
    rules = {
        "draws": 200,
        "quality": {"min_queries": 30},
        "cost": {"min_requests": 50, "repeats": 1},
        "slices": {"thin": 5, "margin": 1.0, "small_margin": 1.0},
        "outcomes": {"min_positive": 5},
        "calibration": {"min_offers": 50, "max_error": 0.5, "margin": 0.5},
        "data": {"min_rankings": 50},
    }
    path.write_bytes(msgspec.yaml.encode(rules))
    return path


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    """The command line."""
    return Nextaction(capsys)
