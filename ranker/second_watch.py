"""The second stage, opened when the version that serves has one: until then nothing of it is imported.

torch takes a second to import and a hundred megabytes to hold, and most services begin with the light stage alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ranker.clock import Clock
from ranker.config import ServeConfig
from ranker.degraded import Degraded
from ranker.inference.engine_stats import COUNTS
from ranker.inference.memory_report import MemorySource
from ranker.light_model import LightModel
from ranker.model_watch import ModelWatch
from ranker.opening import load_version
from ranker.release.errors import RegistryError
from ranker.release.registry import Registry
from ranker.retry import Retry
from ranker.stages.second import Rescored
from ranker.types import Ranking

TOTALS = ("loads", "failures", "users_left", "users_back", "users_lost")
"""Of a desk's figures those that only rise, so that several processes' can be added."""

_log = logging.getLogger(__name__)


class Desk(Protocol):
    """The second stage in the service."""

    async def follow(self, version: str | None) -> None:
        """Makes the second stage of this version the one that scores."""
        ...

    async def rescore(self, ranking: Ranking) -> Rescored | Degraded | str | None:
        """New scores, or why there are none."""
        ...

    async def close(self) -> None:
        """Ends what runs."""
        ...

    def status(self) -> Mapping[str, Any]:
        """Figures for metrics."""
        ...


def load_whole(registry: Registry, config: ServeConfig) -> Callable[[str], LightModel]:
    """Loads a version's light model, tried, and only if its second stage can be used too: a version serves whole, or
    the one before goes on with both.

    Raises, when called:
        RegistryError: a file is not what was published.
        ConfigError: a file is no model, or a weight is not finite, or it was made for another schema.
    """

    def load(version: str) -> LightModel:
        model = load_version(registry, version).tried()
        if config.second.enabled:
            _check_second(registry, version)
        return model

    return load


def _check_second(registry: Registry, version: str) -> None:
    manifest = registry.manifest(version)
    if manifest.second is None:
        return
    try:
        from ranker.second.weights import is_second_file, load_second_model
    except ImportError:
        return  # the watch says so; the light stage serves
    load_second_model({name: registry.read(version, name) for name in manifest.files if is_second_file(name)}, manifest)


def second_watch(
    registry: Registry, watch: ModelWatch, written: Callable[[], int], clock: Clock, config: ServeConfig,
    memory: list[MemorySource], look_s: float,
) -> SecondWatch:  # fmt: skip
    """The watch of a process that follows the log in the config's folder.

    Args:
        watch: of the light stage.
        written: offset below which everything was appended whole.
        memory: pools that `/v1/memory` lists.
    """

    def open_desk() -> Desk:
        from ranker.second.opening import open_desk

        return open_desk(registry, Path(config.log_dir), written, clock, config, memory)

    serving = (lambda: watch.serving) if config.second.enabled else (lambda: None)
    return SecondWatch(registry, serving, open_desk, look_s)


class SecondWatch:
    """Follows the light stage's version.

    Args:
        version: of the light stage, None without one.
        open_desk: imports and opens; called in a thread, once. Raises ImportError where the extra is not installed.
    """

    def __init__(
        self, registry: Registry, version: Callable[[], str | None], open_desk: Callable[[], Desk], look_s: float
    ) -> None:
        self._registry, self._version, self._open_desk, self._look_s = registry, version, open_desk, look_s
        self._desk: Desk | None = None
        self._looked: str | None = None
        self._opening = False
        self._impossible = False
        self._retry = Retry()

    async def run(self) -> None:
        """Looks until cancelled; what nobody foresaw is logged and ends no watch."""
        while True:
            try:
                await self.look()
            except Exception:
                _log.exception("the second stage of version %s cannot serve, the light order stands", self._version())
            await asyncio.sleep(self._look_s)

    async def look(self) -> None:
        """Once."""
        version = self._version()
        if self._desk is None and (version != self._looked or self._retry.due()):
            self._looked = version
            self._retry.settled()
            self._desk = await self._opened(version)
        if self._desk is not None:
            await self._desk.follow(version)

    async def rescore(self, ranking: Ranking) -> Rescored | Degraded | str | None:
        """As the desk says; None while no version has a second stage."""
        if self._desk is not None:
            return await self._desk.rescore(ranking)
        return Degraded.SECOND_LOADING if self._opening else None

    async def close(self) -> None:
        """Ends what runs."""
        desk, self._desk = self._desk, None
        if desk is not None:
            await desk.close()

    def status(self) -> Mapping[str, Any]:
        """Figures for metrics; empty while no version has a second stage."""
        return self._desk.status() if self._desk is not None else {}

    def totals(self) -> dict[str, Any]:
        """Of the status what can be added to that of other processes."""
        status = self.status()
        engine = status.get("engine") or {}
        counted = {name: engine[name] for name in (*COUNTS, "rejections") if name in engine}
        return {**{name: status[name] for name in TOTALS if name in status}, **({"engine": counted} if counted else {})}

    async def _opened(self, version: str | None) -> Desk | None:
        if version is None or self._impossible:
            return None
        self._opening = True
        try:
            manifest = await asyncio.to_thread(self._registry.manifest, version)
            return await asyncio.to_thread(self._open_desk) if manifest.second is not None else None
        except RegistryError as error:
            self._retry.failed()
            _log.error("the second stage of version %s cannot be looked at: %s", version, error)
        except ImportError as error:
            self._impossible = True
            _log.error("version %s has a second stage, which needs the extra `inference`: %s", version, error)
        finally:
            self._opening = False
        return None
