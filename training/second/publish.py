"""A trained second stage becomes a version that holds both stages: the light files it was trained over, and its own."""

from __future__ import annotations

from ranker.release.registry import Manifest, Registry
from ranker.second.weights import is_second_file
from training.second.job import TrainedSecond

KIND = "second"


def light_files(registry: Registry, light: Manifest) -> dict[str, bytes]:
    """Verified files of a version but for those of a second stage.

    Raises:
        RegistryError: one is missing or not what was published.
    """
    return {name: registry.read(light.version, name) for name in light.files if not is_second_file(name)}


def publish_second(registry: Registry, light: Manifest, trained: TrainedSecond) -> Manifest:
    """The new version, whole or not at all; it is not yet active.

    Raises:
        RegistryError: the light version's files do not verify, or the registry cannot be written.
    """
    return registry.publish(
        {**light_files(registry, light), **trained.files},
        schema=light.schema,
        metrics={**light.metrics, **trained.metrics},
        data=light.data,
        extra={**light.extra, "second": trained.extra},
        kind=KIND,
        second=trained.entry,
    )
