"""The light ranker: LightGBM trees over the feature vector, and the text model that fills its text columns.

A version has one or two sets: `plain`, learned from contexts as they were logged, and `hint`, learned with
what the user typed as the context's text; a request whose context has a text uses the second if it is there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import lightgbm
import numpy as np
from numpy.typing import NDArray

from features.errors import FeatureError
from features.known import Moment
from features.registry import COLUMNS, FINGERPRINT, vectors
from features.text_model import TextModel
from features.text_terms import situation_terms
from ranker.errors import ConfigError
from ranker.light_text import checked_model_text
from ranker.tree_arrays import TreeArrays, as_arrays

PLAIN, HINT = "plain", "hint"

_PROBES = np.outer([0.0, math.nan, 1.0, -1.0], np.ones(len(COLUMNS))).astype(np.float32)

Floats = NDArray[np.float64]


class VersionFiles(Protocol):
    """What a registry gives: verified bytes of a version's file."""

    def read(self, version: str, name: str) -> bytes:
        """The file's bytes; raises when it is missing or does not verify."""
        ...


def trees_file(kind: str) -> str:
    """Name of a set's trees in a version."""
    return f"light-{kind}.txt"


def text_file(kind: str) -> str:
    """Name of a set's text model in a version."""
    return f"text-{kind}.safetensors"


@dataclass(frozen=True)
class LightSet:
    """Trees with the text model they were trained beside.

    Args:
        arrays: the same trees, where they can be laid out so; they score in their place.
    """

    trees: lightgbm.Booster
    text: TextModel
    arrays: TreeArrays | None = None

    def prepare(self, moment: Moment) -> Moment:
        """The moment with its text scores."""
        terms = situation_terms(moment.user, moment.context, moment.known.session)
        return moment.with_text_scores(self.text.scores(terms, moment.actions))

    def score(self, features: NDArray[np.float32]) -> Floats:
        """Scores [candidates] of vectors [candidates, columns], on one thread."""
        if not len(features):
            return np.zeros(0)
        if self.arrays is not None:
            return self.arrays.scores(features)
        return self.predicted(features)

    def predicted(self, features: NDArray[np.float32]) -> Floats:
        """LightGBM's own scores."""
        scores: Floats = np.asarray(self.trees.predict(features, num_threads=1), np.float64)
        return scores


class LightModel:
    """One version's light ranker."""

    def __init__(self, version: str, schema: str, sets: Mapping[str, LightSet]) -> None:
        self.version = version
        self.schema = schema
        self._sets = dict(sets)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The sets it has."""
        return tuple(self._sets)

    def choose(self, has_text: bool) -> LightSet:
        """The set for a context with or without a text of its own."""
        return self._sets.get(HINT if has_text else PLAIN) or self._sets[PLAIN]

    def score(self, moment: Moment) -> tuple[NDArray[np.float32], Floats]:
        """Vectors [candidates, columns] and scores [candidates]."""
        chosen = self.choose(bool(moment.context.text))
        features = vectors(chosen.prepare(moment))
        return features, chosen.score(features)

    def tried(self) -> LightModel:
        """This model once its trees have scored something.

        Raises:
            ConfigError: they cannot.
        """
        for kind, chosen in self._sets.items():
            try:
                scores = chosen.predicted(_PROBES)
            except lightgbm.basic.LightGBMError as error:
                raise ConfigError(f"model version {self.version!r}, {trees_file(kind)}: {error}") from error
            if not np.isfinite(scores).all():
                raise ConfigError(f"model version {self.version!r}, {trees_file(kind)}: a score is not finite")
            if not np.array_equal(chosen.score(_PROBES), scores):
                raise ConfigError(f"model version {self.version!r}, {trees_file(kind)}: its arrays score otherwise")
        return self

    @classmethod
    def load(cls, files: VersionFiles, version: str, schema: str, names: Mapping[str, object]) -> LightModel:
        """Reads a version.

        Args:
            schema: the fingerprint in its manifest.
            names: its files by name.

        Raises:
            ConfigError: a file is broken or not what it should be.
        """
        kinds = [kind for kind in (PLAIN, HINT) if trees_file(kind) in names]
        if PLAIN not in kinds:
            raise ConfigError(f"model version {version!r} has no {trees_file(PLAIN)}")
        sets = {kind: _load_set(files, version, kind) for kind in kinds}
        for kind, loaded in sets.items():
            if schema == FINGERPRINT and tuple(loaded.trees.feature_name()) != COLUMNS:
                raise ConfigError(f"model version {version!r}, {trees_file(kind)}: not the features of {schema}")
        return cls(version, schema, sets)


def _load_set(files: VersionFiles, version: str, kind: str) -> LightSet:
    try:
        text = TextModel.from_bytes(files.read(version, text_file(kind)))
    except FeatureError as error:
        raise ConfigError(f"model version {version!r}, {text_file(kind)}: {error}") from error
    packed = files.read(version, trees_file(kind))
    try:
        checked = checked_model_text(packed)
        trees = lightgbm.Booster(model_str=checked)
    except (lightgbm.basic.LightGBMError, ValueError) as error:
        raise ConfigError(f"model version {version!r}, {trees_file(kind)}: {error}") from error
    return LightSet(trees, text, as_arrays(checked))
