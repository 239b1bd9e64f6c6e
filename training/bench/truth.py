"""How good a version is by the simulated people's true needs, which no log shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from features.events import Event, RankingEvent
from features.known import Moment
from features.label_config import OutcomeWindows
from features.outcomes import WINDOWS
from training.labels import RankingName
from training.metrics import ndcg
from training.queries import moment_of
from training.replay import Replay
from training.simulate import Exploration, Simulator
from training.simulated.policies import LoggingPolicy
from training.simulated.scenes import Scene

Floats = NDArray[np.float64]
Score = Callable[[Moment], Floats]
DEPTH = 3


@dataclass
class World:
    """A simulated log and what is true behind each of its rankings."""

    events: list[Event] = field(default_factory=list)
    scenes: dict[RankingName, Scene] = field(default_factory=dict)
    shown: dict[RankingName, RankingEvent] = field(default_factory=dict)

    def _watch(self, scene: Scene, ranking: RankingEvent) -> None:
        self.scenes[ranking.user, ranking.id] = scene
        self.shown[ranking.user, ranking.id] = ranking

    @classmethod
    def simulate(cls, simulator: Simulator, exploration: Exploration, policy: LoggingPolicy | None = None) -> World:
        """A log as a service with this policy would have written it."""
        world = cls()
        world.events = list(simulator.events(policy, exploration, world._watch))
        return world


@dataclass(frozen=True)
class TrueQuality:
    """True NDCG@DEPTH per judged scene; `scenes` are (user, time), the same under every policy.

    Args:
        clusters: the user of each.
    """

    values: Floats
    scenes: list[tuple[str, float]]

    @property
    def mean(self) -> float:
        """Over scenes."""
        return float(self.values.mean())

    @property
    def clusters(self) -> list[str]:
        """The user of each scene."""
        return [user for user, _ in self.scenes]


def shown_quality(world: World) -> float:
    """Mean true NDCG@DEPTH of the lists that people saw while the log was written: what exploring cost them."""
    found = []
    for name, scene in world.scenes.items():
        places = {(item.action, item.target): item.position for item in world.shown[name].items}
        order = [
            -places.get((candidate.action, candidate.target), len(scene.candidates)) for candidate in scene.candidates
        ]
        found.append(ndcg(order, scene.truth, DEPTH))
    return float(np.mean([value for value in found if value is not None]))


def true_quality(
    logdir: Path, scenes: Mapping[RankingName, Scene], score: Score, since_s: float, windows: OutcomeWindows = WINDOWS
) -> TrueQuality:
    """Judges a scorer on every scene from `since_s` on, with features as known at each moment."""
    found = list(_judged(Replay(logdir, windows=windows), scenes, score, since_s))
    return TrueQuality(np.array([value for value, _ in found]), [name for _, name in found])


def _judged(
    replay: Replay, scenes: Mapping[RankingName, Scene], score: Score, since_s: float
) -> Iterator[tuple[float, tuple[str, float]]]:
    for decision in replay:
        scene = scenes.get((decision.event.user, decision.event.id))
        if scene is None or decision.event.time_s < since_s:
            continue
        pairs = [(candidate.action, candidate.target) for candidate in scene.candidates]
        value = ndcg(score(moment_of(decision, pairs, replay.state.catalogue)), scene.truth, DEPTH)
        if value is not None:
            yield value, (decision.event.user, decision.event.time_s)
