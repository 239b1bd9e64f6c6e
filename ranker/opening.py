"""Opens what the service stands on; what is missing or broken is one line of a ConfigError."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import suppress
from pathlib import Path

from features.catalogue_log import LiveCatalogue, save_catalogue
from features.embedded_store import open_embedded_store
from features.errors import LogError, StoreError
from features.log import LogWriter
from features.redis_store import RedisStore
from features.store import FeatureStore
from features.store_snapshots import SnapshotFolder
from ranker.config import EMBEDDED, ServeConfig
from ranker.errors import ConfigError
from ranker.light_model import LightModel
from ranker.release.errors import RegistryError
from ranker.release.registry import Registry
from ranker.safety_text import TextScorerError, load_text_scorer
from ranker.text_check import TextScorer

SAFETY_FILE = "safety.safetensors"
"""In the models' folder: the text scorer, where one was trained."""

SNAPSHOTS = "store"
"""In the log's folder: the embedded store's snapshot of what the log's events have made of it."""

GC_THRESHOLDS = (20_000, 20, 100)

_log = logging.getLogger(__name__)


def load_model(registry: Registry) -> LightModel | None:
    """The active version's light model; None when no version was ever activated."""
    try:
        version = registry.active()
        return load_version(registry, version) if version is not None else None
    except RegistryError as error:
        raise ConfigError(f"models in {registry.folder}: {error}") from error


def load_version(registry: Registry, version: str) -> LightModel:
    """A version's light model, verified.

    Raises:
        RegistryError: a file is not what was published.
        ConfigError: a file is no model.
    """
    manifest = registry.manifest(version)
    return LightModel.load(registry, version, manifest.schema, manifest.files)


def load_scorer(path: Path) -> TextScorer | None:
    """The text scorer, None where none was trained. Raises ConfigError for a broken one."""
    try:
        return load_text_scorer(path) if path.exists() else None
    except TextScorerError as error:
        raise ConfigError(str(error)) from error


def open_store(config: ServeConfig) -> RedisStore:
    """The store that the config names; not yet asked anything."""
    if config.store == EMBEDDED:
        snapshots = SnapshotFolder(Path(config.log_dir).absolute() / SNAPSHOTS)
        return open_embedded_store(timeout_ms=config.store_timeout_ms, snapshots=snapshots)
    return RedisStore.connect(config.store, timeout_ms=config.store_timeout_ms)


async def reach(store: FeatureStore, name: str) -> None:
    """Opens the connection. A store of somebody else may come later: until then rankings know no person.

    Raises:
        ConfigError: the embedded one does not answer, several times.
    """
    tries = 5 if name == EMBEDDED else 1
    for attempt in range(1, tries + 1):
        try:
            await store.ping()
            return
        except StoreError as error:
            if name != EMBEDDED:
                _log.warning("store %r cannot be reached, priors rank until it can: %s", store, error)
            elif attempt == tries:
                raise ConfigError(f"store {name} cannot be reached: {error}") from error
        await asyncio.sleep(0.2)


def settle_memory() -> None:
    """What the start made is taken out of garbage collection: no pauses for it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def close_log(log: LogWriter) -> None:
    """Syncs and closes; a failure is logged, for there is nobody left to tell."""
    try:
        log.close()
    except LogError as error:
        _log.error("the last lines of the log may be lost: %s", error)


def keep_catalogue(logdir: Path, live: LiveCatalogue, log: LogWriter) -> None:
    """A snapshot spares the next start a scan; without one the log is read."""
    live.scanned = log.end
    with suppress(OSError):
        save_catalogue(logdir, live)
