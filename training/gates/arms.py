"""A version, or the priors, as a gate and a replay ask them: scores of a logged decision's candidates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from features.events import Event
from features.known import Moment
from features.priors import prior_of
from features.registry import COLUMNS, FINGERPRINT
from ranker.light_model import PLAIN, LightModel, trees_file
from ranker.release.gating import PRIORS
from ranker.release.registry import Manifest, Registry
from training.evaluate import SecondStage
from training.gates.errors import GateError
from training.queries import Query

Floats = NDArray[np.float64]


class Arm(Protocol):
    """One of those that are compared."""

    @property
    def name(self) -> str:
        """A version, or PRIORS."""
        ...

    def follow(self, offset: int, event: Event) -> None:
        """Told of each event as it changes what is known."""
        ...

    def score(self, query: Query) -> tuple[NDArray[np.float32], Floats]:
        """Vectors [candidates, columns], without columns where it makes none, and scores [candidates]."""
        ...


@dataclass(frozen=True)
class Priors:
    """The order without a model."""

    name: str = PRIORS

    def follow(self, offset: int, event: Event) -> None:
        """Nothing is kept."""

    def score(self, query: Query) -> tuple[NDArray[np.float32], Floats]:
        """As the light stage scores where it has no model."""
        return np.zeros((len(query.moment.actions), 0), np.float32), np.asarray(prior_of(query.moment), np.float64)


@dataclass(frozen=True)
class VersionArm:
    """A version's light stage, and its second one where it has one."""

    name: str
    light: LightModel
    second: SecondStage | None = None

    def follow(self, offset: int, event: Event) -> None:
        """Tells the second stage."""
        if self.second is not None:
            self.second.follow(offset, event)

    def score(self, query: Query) -> tuple[NDArray[np.float32], Floats]:
        """The scores that the answer's order follows."""
        vectors, scores = self.light.score(query.moment)
        if self.second is not None:
            scores = self.second.scores(query, vectors, scores)
        return vectors, np.asarray(scores, np.float64)


@dataclass(frozen=True)
class Followers:
    """Tells both of each event."""

    arms: tuple[Arm, ...] = field(default=())

    def __call__(self, offset: int, event: Event) -> None:
        for arm in self.arms:
            arm.follow(offset, event)


def anew(query: Query) -> Query:
    """The query with nothing computed yet: who is asked second must not find what the first has read."""
    return replace(query, moment=_fresh(query.moment))


def _fresh(moment: Moment) -> Moment:
    return replace(moment, _gathered={})


def load_arm(registry: Registry, version: str) -> tuple[Arm, Manifest]:
    """A version of the registry.

    Raises:
        RegistryError: there is none, or it is not what was published.
        GateError: it has no light stage, or it was made for other features than this program computes.
        ConfigError: a file is broken.
    """
    manifest = registry.manifest(version)
    if trees_file(PLAIN) not in manifest.files:
        raise GateError(f"version {version} is of kind {manifest.kind!r} and has no light stage: it never serves")
    if manifest.second is not None and manifest.second.without:
        raise GateError(f"version {version} was trained by --ablate: it never serves")
    if manifest.schema != FINGERPRINT:
        raise GateError(f"version {version} was made for schema {manifest.schema}, not this program's {FINGERPRINT}")
    light = LightModel.load(registry, version, manifest.schema, manifest.files)
    second = None if manifest.second is None else _second(registry, manifest)
    return VersionArm(version, light, second), manifest


def _second(registry: Registry, manifest: Manifest) -> SecondStage:
    import torch

    from ranker.second.weights import is_second_file, load_second_model
    from training.second.judge import SecondJudge

    torch.set_num_threads(1)  # what is timed is the work, not how many share it
    files = {name: registry.read(manifest.version, name) for name in manifest.files if is_second_file(name)}
    model = load_second_model(files, manifest)
    assert model is not None, "its manifest has one"
    return SecondJudge(model)


def has_vectors(vectors: NDArray[np.float32]) -> bool:
    """Whether these are vectors of this program's features."""
    return vectors.shape[1:] == (len(COLUMNS),)
