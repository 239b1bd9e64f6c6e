"""A keeper and a follower in this process: a real socket between them, one store, one clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from features.server_folder import new_folder
from ranker.answers import RankAnswer
from ranker.build import Surroundings
from ranker.policy_config import PolicyConfig
from ranker.types import RankRequest
from ranker.workers.desk import Desk as FeedDesk
from ranker.workers.endpoint import FEED, open_feed
from ranker.workers.errors import FeedError
from ranker.workers.follower import Follower, build_follower
from ranker.workers.keeper import KeeperService
from ranker.workers.messages import ToldAny
from ranker.workers.spawning import Crew
from tests.ranker.online import Desk, config_of, service

LIMIT_MS = 400.0


@dataclass
class Gate:
    """Lets a follower take messages in, or not: as one that was stopped."""

    follower: Follower
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        take = self.follower.feed._take

        async def gated(message: ToldAny) -> None:
            await self.open.wait()
            await take(message)

        self.follower.feed._take = gated  # type: ignore[method-assign]
        self.open.set()


@dataclass
class Pair:
    """The keeper's desk of a test, its feed, and a follower."""

    keeper: Desk
    feed: FeedDesk
    service: KeeperService
    follower: Follower
    gate: Gate
    folder: Path
    build: Callable[[int], Follower]

    async def rank(self, **fields: Any) -> RankAnswer:
        """An answer of the follower."""
        body = {"user": "u1", "context": {"surface": "chat", "locale": "en-GB"}, **fields}
        return await self.follower.ranking.rank(
            msgspec.convert(body, RankRequest),
            msgspec.json.encode(body),
            caller="app",
            explain=False,
            arrived_ms=self.keeper.clock.monotonic_ms(),
        )

    async def post(self, **fields: Any) -> None:
        """An event that the keeper acknowledges."""
        (answer,) = await self.service.ingest([msgspec.json.encode(self.keeper.event(**fields))])
        assert answer.status == "accepted", answer

    async def settled(self, worker: int = 1) -> None:
        """Returns once the follower has taken in all that was said."""
        line = self.feed._lines[worker].member
        async with asyncio.timeout(10.0):
            while line.acked < line.sent:
                await asyncio.sleep(0.001)

    async def beat(self) -> None:
        """Time for the next beat, and its arrival."""
        self.keeper.clock.advance(LIMIT_MS / 3000.0)
        for line in self.feed._lines.values():
            self.feed._beat(line)
        await self.settled()


@asynccontextmanager
async def following(follower: Follower, folder: Path) -> AsyncIterator[None]:
    """Within it a follower follows."""
    task = asyncio.create_task(follower.feed.run(folder / FEED))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, FeedError):
            await task


@asynccontextmanager
async def pair(tmp_path: Path, **options: Any) -> AsyncIterator[Pair]:
    """Both, joined."""
    config: dict[str, Any] = {"catalogue_lag_limit_ms": LIMIT_MS, "store_timeout_ms": 2000.0}
    kept = {name: options.pop(name) for name in ("epsilon", "lag_limit_ms") if name in options}
    async with service(tmp_path, **options, **config, **kept) as keeper:
        owners = keeper.running.service.owners
        desk = FeedDesk(owners.log, owners.applier, owners.catalogue.live, owners.intake.own, keeper.clock, LIMIT_MS)
        owners.applier.listener, owners.catalogue.on_changed = desk, desk.changed
        owners.intake.own.on_wrote = desk.wrote
        folder = new_folder()
        listening = await open_feed(desk, folder)
        around = Surroundings(clock=keeper.clock, environment={}, model=keeper.model)
        settings = config_of(tmp_path, **config, **kept)

        def build(worker: int) -> Follower:
            return build_follower(worker, settings, PolicyConfig(), keeper.store, around)

        follower = build(1)
        gate = Gate(follower)
        try:
            async with following(follower, folder):
                await asyncio.wait_for(follower.joined.wait(), 10.0)
                service_ = KeeperService(keeper.running.service, desk, Crew([]))
                found = Pair(keeper, desk, service_, follower, gate, folder, build)
                await found.settled()
                yield found
        finally:
            await desk.close_all()
            listening.close()
            await asyncio.sleep(0)
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
