"""Opens what several workers need in the keeper: the desk with its sockets, and the other processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from features.redis_store import RedisStore
from features.server_folder import new_folder
from ranker.build import Running
from ranker.config import EMBEDDED
from ranker.policy_config import PolicyConfig
from ranker.server import serve
from ranker.workers.desk import Desk
from ranker.workers.endpoint import FORWARD, open_feed, private_socket
from ranker.workers.keeper import KeeperService
from ranker.workers.spawning import Crew
from ranker.workers.start import Start

JOIN_S = 15.0
"""So long the start waits for the others; they may still come later."""

ASGIApp = Callable[..., Awaitable[None]]

_log = logging.getLogger(__name__)


@dataclass
class Keeper:
    """The first process, and what it has of the others."""

    service: KeeperService
    folder: Path
    workers: int
    _forwarded: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list, init=False)

    async def start(self, app: ASGIApp) -> None:
        """Answers what the others hand on, lets them follow, and starts them."""
        behind = private_socket(self.folder, FORWARD)
        self._tasks = [
            asyncio.create_task(serve(app, behind, self._forwarded), name="requests of other workers"),
            asyncio.create_task(self.service.desk.run(), name="beats"),
            asyncio.create_task(self.service.crew.run(), name="other workers"),
        ]

    async def joined(self, stop: asyncio.Event, limit_s: float = JOIN_S) -> None:
        """Returns once all of them rank, or after a while, or when it is to stop."""
        end_s = asyncio.get_running_loop().time() + limit_s
        while self.service.live() < self.workers and asyncio.get_running_loop().time() < end_s and not stop.is_set():
            await asyncio.sleep(0.01)
        if self.service.live() < self.workers:
            _log.warning("only %d of %d workers rank so far", self.service.live(), self.workers)

    async def end_with(self, stop: asyncio.Event) -> None:
        """Ends the others once it is to stop, in their own time: until then they need this one."""
        await stop.wait()
        await self.service.crew.stop()

    async def close(self) -> None:
        """Ends the others, should they live, and what was there for them."""
        await self.service.crew.stop()
        self._forwarded.set()
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def open_keeper(running: Running, policy: PolicyConfig, listener: socket.socket) -> AsyncIterator[Keeper]:
    """Makes a running service the keeper of others.

    Args:
        listener: the public socket, which the others inherit.

    Raises:
        FeatureError: there is no place for the private sockets.
    """
    owners, config = running.service.owners, running.config
    desk = Desk(
        owners.log,
        owners.applier,
        owners.catalogue.live,
        owners.intake.own,
        running.service.ranking.clock,
        config.catalogue_lag_limit_ms,
    )
    folder = new_folder()
    try:
        starts = [
            Start(worker, str(folder), _store_url(running), listener.fileno(), config, policy)
            for worker in range(1, config.workers)
        ]
        crew = Crew(starts)
        desk.on_left = crew.give_up
        owners.applier.listener = desk
        owners.catalogue.on_changed = desk.changed
        owners.intake.own.on_wrote = desk.wrote
        feed = await open_feed(desk, folder)
        keeper = Keeper(KeeperService(running.service, desk, crew), folder, config.workers)
        try:
            yield keeper
        finally:
            await keeper.close()
            feed.close()
            await desk.close_all()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _store_url(running: Running) -> str:
    store = running.service.owners.store
    if running.config.store != EMBEDDED:
        return running.config.store
    assert isinstance(store, RedisStore)
    return f"unix://{quote(store.address.path)}"
