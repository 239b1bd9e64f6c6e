"""Another version becomes active: loaded beside the one that serves, and put in its place whole.

Nothing of it is on the way of a request: the pointer is looked at, and a version read, verified and tried, in
a thread; then one assignment on the event loop changes what the next ranking uses. The trees of a model are
only ever asked by one thread: the loader's before the change, the event loop's after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ranker.errors import RankerError
from ranker.release.errors import RegistryError
from ranker.release.registry import Registry
from ranker.retry import RETRY_LOOKS, Retry
from ranker.stages.light import Light, LightModel

LOOK_S = 1.0

_log = logging.getLogger(__name__)


@dataclass
class ModelWatch:
    """Keeps `light.model` at the registry's active version.

    Args:
        load: reads a version and gives its model, checked; called in a thread.
        look_s: how often the pointer is looked at.
        retry_looks: after so many looks a version that failed is tried again: it may have been the disk.
        loads: versions put in place so far.
        failures: attempts that failed so far; the version before went on serving.
        refused: the version that could not be loaded, and why; None when all is well.
    """

    registry: Registry
    light: Light
    load: Callable[[str], LightModel]
    look_s: float = LOOK_S
    retry_looks: int = RETRY_LOOKS
    loads: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    refused: tuple[str, str] | None = field(default=None, init=False)
    _retry: Retry = field(init=False)

    def __post_init__(self) -> None:
        self._retry = Retry(self.retry_looks)

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            await asyncio.sleep(self.look_s)
            await self.look()

    async def look(self) -> None:
        """Loads the active version unless it serves already; what fails is logged once and counted."""
        version = "?"
        try:
            active = await asyncio.to_thread(self.registry.active)
            # Without a pointer what serves goes on: a registry knows no way to deactivate.
            if active is None or active == self.serving:
                self.refused = None
                return
            version = active
            if self._waits(version):
                return
            model = await asyncio.to_thread(self._checked, version)
        except Exception as error:
            self._failed(version, error)
            return
        _log.info("light version %s serves, in place of %s", version, self.serving)
        self.light.model = model
        self.loads += 1
        self.refused = None

    @property
    def serving(self) -> str | None:
        """The version in use; None without one."""
        return self.light.model.version if self.light.model is not None else None

    def _checked(self, version: str) -> LightModel:
        model = self.load(version)
        if model.schema != self.light.schema:
            raise RankerError(f"it was made for feature schema {model.schema}, not for {self.light.schema}")
        return model

    def _waits(self, version: str) -> bool:
        """Whether it failed a short while ago."""
        return self.refused is not None and self.refused[0] == version and not self._retry.due()

    def _failed(self, version: str, error: Exception) -> None:
        self.failures += 1
        refused = (version, " ".join(str(error).split()) or type(error).__name__)
        if refused != self.refused:
            expected = isinstance(error, RegistryError | RankerError | OSError)
            trace = None if expected else error
            _log.error("light version %s cannot serve, the one before goes on: %s", *refused, exc_info=trace)
        self.refused = refused
        self._retry.failed()
