"""The version that a training goes on from: its trees and text models, and where its data ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import lightgbm

from features.registry import FINGERPRINT
from features.text_model import TextModel, TextModelError
from ranker.light_model import HINT, PLAIN, text_file, trees_file
from ranker.release.registry import Manifest, Registry
from training.errors import TrainingError


@dataclass(frozen=True)
class Parent:
    """A light version as it was published.

    Args:
        until_s: its data ended there, Unix seconds, exclusive.
        generation: how many times it was gone on from already since the version that learned anew.
        since: where its data began, with that of all it goes on from, as its manifest writes it.
        rankings: in it.
        files: of its sets.
    """

    version: str
    until_s: float
    generation: int = 0
    since: str | None = None
    rankings: int = 0
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, registry: Registry, version: str) -> Parent:
        """A version of the registry, or its `latest` light one.

        Raises:
            TrainingError: there is no light version, or it is of other features.
            RegistryError: there is no such version, or it is broken.
        """
        manifest = latest_light(registry) if version == "latest" else registry.manifest(version)
        if manifest is None:
            raise TrainingError(f"{registry.folder} has no light version to go on from")
        if manifest.kind != "light":
            raise TrainingError(f"version {manifest.version!r} is a {manifest.kind} version: only a light one goes on")
        if manifest.schema != FINGERPRINT:
            raise TrainingError(
                f"version {manifest.version!r} is of features {manifest.schema}, these are {FINGERPRINT}: learn anew"
            )
        if not manifest.data.until:
            raise TrainingError(f"version {manifest.version!r} does not say where its data ended: learn anew")
        names = [name for kind in (PLAIN, HINT) for name in (text_file(kind), trees_file(kind))]
        files = {name: registry.read(manifest.version, name) for name in names if name in manifest.files}
        lineage = manifest.extra.get("lineage")
        generation = lineage.get("generation", 0) if isinstance(lineage, dict) else 0
        until_s = datetime.fromisoformat(manifest.data.until).timestamp()
        generation = generation if isinstance(generation, int) else 0
        return cls(manifest.version, until_s, generation, manifest.data.since, manifest.data.rankings, files)

    def set_files(self, kind: str) -> dict[str, bytes]:
        """A set as it was, where there is one."""
        return {name: self.files[name] for name in (text_file(kind), trees_file(kind)) if name in self.files}

    def text(self, kind: str) -> TextModel | None:
        """Of a set; None where there is none.

        Raises:
            TrainingError: it cannot be read.
        """
        packed = self.files.get(text_file(kind))
        try:
            return None if packed is None else TextModel.from_bytes(packed)
        except TextModelError as error:
            raise TrainingError(f"version {self.version!r}: {error}") from error

    def trees(self, kind: str, most: int) -> lightgbm.Booster | None:
        """The first trees of a set, at most so many; None where there is none.

        Raises:
            TrainingError: they cannot be read.
        """
        packed = self.files.get(trees_file(kind))
        try:
            if packed is None:
                return None
            whole = lightgbm.Booster(model_str=packed.decode())
            return lightgbm.Booster(model_str=whole.model_to_string(num_iteration=most))
        except (lightgbm.basic.LightGBMError, UnicodeDecodeError) as error:
            raise TrainingError(f"version {self.version!r}: {trees_file(kind)}: {error}") from error


def latest_light(registry: Registry) -> Manifest | None:
    """The newest version whose kind is light, whether it serves or not."""
    manifests = (registry.manifest(version) for version in reversed(registry.versions()))
    return next((manifest for manifest in manifests if manifest.kind == "light"), None)
