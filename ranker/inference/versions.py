"""Which versions an engine serves: one loads while another serves, and one that retires ends what it has begun.

    loading → serving → leaving

The shards of a version are pinned from before its `load` until after its `unload`: a model keeps views of them, and a
batch that first had to wait for its weights would end late. A batch, and every request that waits, is counted as a use,
so the pins outlive the last of them. Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Any

from ranker.inference.engine_errors import VersionRefused
from ranker.inference.model import Model
from ranker.inference.shards import ShardCache

Warm = Callable[[], Awaitable[None]]
"""Runs a version before anybody may ask for it."""


class Stage(StrEnum):
    """Where a version is in its life."""

    LOADING = "loading"
    SERVING = "serving"
    LEAVING = "leaving"


class Version:
    """One version of a model, and how many callers it still owes an answer."""

    def __init__(self, key: str, model: Model) -> None:
        self.key = key
        self.model = model
        self.stage = Stage.LOADING
        self.uses = 0
        self.pins = AsyncExitStack()
        self.unused: asyncio.Future[None] | None = None  # of whoever waits for the last use to end
        self.task: asyncio.Task[None] | None = None


class Versions:
    """The versions by `model@version`.

    Args:
        cache: where their shards come from, of this engine alone; may be None for models that have none.
    """

    def __init__(self, cache: ShardCache | None) -> None:
        self._cache = cache
        self._versions: dict[str, Version] = {}
        self._retired: set[tuple[str, str]] = set()

    def find(self, key: str) -> Version | None:
        """A version in any stage."""
        return self._versions.get(key)

    def stages(self) -> dict[str, str]:
        """Stage by version."""
        return {key: version.stage.value for key, version in self._versions.items()}

    def use(self, key: str) -> None:
        """One more caller waits for this version."""
        self._versions[key].uses += 1

    def unuse(self, key: str) -> None:
        """One caller fewer."""
        version = self._versions[key]
        version.uses -= 1
        if version.unused is not None and version.uses == 0:
            version.unused.set_result(None)
            version.unused = None

    async def load(self, key: str, model: Model, warm: Warm) -> None:
        """Pins its shards and loads it beside what runs; a caller who is cancelled meanwhile does not stop that.

        Args:
            warm: runs once it is loaded, before it serves; what it raises refuses the version.

        Raises:
            VersionRefused: it is there already, or its shards belong to another version.
            Busy, ChecksumMismatch, …: what the cache or `model.load` raises; nothing stays pinned.
        """
        if key in self._versions:
            raise VersionRefused(f"version {key!r} is {self._versions[key].stage.value} already")
        if strange := [str(shard) for shard in model.shards if shard.model_key != key]:
            raise VersionRefused(f"version {key!r} cannot be made of {strange[0]}")
        version = self._versions[key] = Version(key, model)
        await self._detached(version, self._load(version, warm))

    async def retire(self, key: str) -> None:
        """Takes no more requests for it; returns when it has answered what it owes and its pins are released.

        Raises:
            VersionRefused: it is not served.
        """
        version = self._versions.get(key)
        if version is None or version.stage is not Stage.SERVING:
            raise VersionRefused(f"version {key!r} is not served")
        version.stage = Stage.LEAVING
        await self._detached(version, self._leave(version))

    async def close(self) -> None:
        """Ends loads and lets all versions go; for an engine that owes nobody anything."""
        for version in tuple(self._versions.values()):
            if version.stage is Stage.LOADING and version.task is not None:
                await asyncio.wait({version.task})
            if version.stage is Stage.SERVING:
                version.stage = Stage.LEAVING
                await self._leave(version)
            elif version.task is not None:
                await asyncio.wait({version.task})

    async def _detached(self, version: Version, work: Coroutine[Any, Any, None]) -> None:
        """Goes on even if its caller is cancelled: half a load would leave pins, or a model without its shards."""
        version.task = asyncio.get_running_loop().create_task(work, name=f"version {version.key}")
        version.task.add_done_callback(
            lambda task: task.cancelled() or task.exception()
        )  # looked at, if by nobody else
        await asyncio.shield(version.task)

    async def _load(self, version: Version, warm: Warm) -> None:
        try:
            shards = {}
            for key in version.model.shards:
                assert self._cache is not None, f"{key} needs a shard cache"
                if (key.model, key.version) in self._retired:  # by us: a roll-back
                    self._retired.discard((key.model, key.version))
                    self._cache.readmit(key.model, key.version)
                shards[key.shard] = await version.pins.enter_async_context(self._cache.pin(key))
            await asyncio.to_thread(version.model.load, shards)
        except BaseException:
            del self._versions[version.key]
            await version.pins.aclose()
            raise
        try:
            await warm()
        except BaseException:
            await self._give_up(version)
            raise
        version.stage = Stage.SERVING

    async def _give_up(self, version: Version) -> None:
        """Lets go of a version that is loaded and shall not serve; of one that hangs the device, when that ends."""
        version.stage = Stage.LEAVING
        leaving = version.task = asyncio.get_running_loop().create_task(self._leave(version))
        leaving.add_done_callback(lambda task: task.cancelled() or task.exception())
        if not version.uses:
            await leaving

    async def _leave(self, version: Version) -> None:
        if version.uses:
            version.unused = asyncio.get_running_loop().create_future()
            await version.unused
        await asyncio.to_thread(version.model.unload)
        await version.pins.aclose()
        del self._versions[version.key]
        if self._cache is not None:
            for name, number in {(key.model, key.version) for key in version.model.shards}:
                self._cache.retire(name, number)
                self._retired.add((name, number))
