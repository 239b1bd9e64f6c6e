"""Logged vectors of explored traffic beside those that a replay computes."""

from __future__ import annotations

import math
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from features.events import Event, RankingEvent
from features.registry import COLUMNS, FINGERPRINT, vectors
from tests.training.logs import answered, catalogue, ranked, write_log
from training.queries import Query
from training.replaying.compare import Comparison
from training.replaying.in_process import PlayPlan, play_here
from training.replaying.pace import Pace

POOL = [("a", None, 3.0), ("b", None, 2.0)]


@dataclass
class Vectors:
    """An arm that gives the features and keeps what it gave; `added` makes them differ."""

    added: float = 0.0
    name: str = "vectors"
    given: NDArray[np.float32] | None = None

    def follow(self, offset: int, event: Event) -> None:
        """Nothing is kept."""

    def score(self, query: Query) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        self.given = np.asarray(vectors(query.moment) + np.float32(self.added), np.float32)
        return self.given, np.arange(len(self.given), dtype=np.float64)


def events(logged: NDArray[np.float32] | None, schema: str = FINGERPRINT) -> list[Event]:
    """A completion, and an explored ranking after it, with its vectors or without."""
    text = None if logged is None else b64encode(logged[[0, 2]].tobytes()).decode()  # without what was withheld
    ranking: RankingEvent = ranked(
        "r2", 30.0, "ba", traffic="explore", pool=POOL, withheld=[(1, "c", None, 2.5)], versions={"schema": schema}
    )
    before = [*catalogue("abc"), ranked("r1", 1.0), answered("r1", "complete", 2.0, "b")]
    return [*before, msgspec.structs.replace(ranking, features=text)]


def played(log: Path, arm: Vectors) -> Comparison:
    found = Comparison()
    for each in play_here(PlayPlan(log, -math.inf), arm, Pace()):
        found.add(each)
    return found


@pytest.fixture
def logged(tmp_path: Path) -> NDArray[np.float32]:
    """As they are when the explored ranking is made."""
    arm = Vectors()
    played(write_log(tmp_path / "first", events(None)), arm)
    assert arm.given is not None and arm.given.shape == (3, len(COLUMNS))
    return arm.given


def test_recomputed_vectors_are_the_logged_ones_to_the_bit(tmp_path: Path, logged: NDArray[np.float32]) -> None:
    log = write_log(tmp_path / "log", events(logged))
    features = played(log, Vectors()).to_json()["features"]
    assert (features["rows"], features["exact_share"], features["all_missing"]) == (2, 1.0, [])
    assert all(each["kl"] == pytest.approx(0.0, abs=1e-12) for each in features["drift"].values())


def test_vectors_that_moved_are_seen(tmp_path: Path, logged: NDArray[np.float32]) -> None:
    log = write_log(tmp_path / "log", events(logged))
    features = played(log, Vectors(added=0.5)).to_json()["features"]
    assert features["exact_share"] == 0.0
    assert max(each["kl"] for each in features["drift"].values()) > 0.1


@pytest.mark.parametrize("schema", ["feedfeedfeedfeed", FINGERPRINT])
def test_vectors_of_another_schema_or_size_are_not_compared(
    tmp_path: Path, logged: NDArray[np.float32], schema: str
) -> None:
    cut = logged if schema != FINGERPRINT else logged[:, :3]
    features = played(write_log(tmp_path / "log", events(cut, schema)), Vectors()).to_json()["features"]
    assert (features["rows"], features["exact_share"]) == (0, None)
