"""A service under steady load on the machine's clock, before a store that misbehaves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from features.applier_settings import ApplierSettings
from features.circuit import Circuit
from features.events import format_time, from_seconds
from features.redis_store import RedisStore
from features.store import FeatureStore
from ranker.answers import RankAnswer
from ranker.build import Running, Surroundings, build
from ranker.clock import SystemClock
from ranker.policy_config import PolicyConfig
from ranker.types import RankRequest
from tests.ranker.online import ACTIONS, VectorModel, config_of, specs_of

CLOCK = SystemClock()
BUDGET_MS = 800.0
TIMEOUT_MS = 150.0
LAG_LIMIT_MS = 700.0
EAGER = ApplierSettings(pause_s=0.005, poll_s=0.01, check_s=0.1, back_off_s=(0.005, 0.1))


def connect(url: str, **options: Any) -> RedisStore:
    """A store that gives up quickly, with a circuit that tries again quickly."""
    return RedisStore.connect(url, timeout_ms=TIMEOUT_MS, circuit=Circuit(open_s=0.2), **options)


@asynccontextmanager
async def serving(folder: Path, store: FeatureStore, **config: Any) -> AsyncIterator[Running]:
    """A service on the machine's clock that always explores, so that the log has what it saw."""
    around = Surroundings(
        clock=CLOCK,
        environment={},
        store=store,
        model=VectorModel(),
        actions=specs_of(ACTIONS),
        applier=EAGER,
        start_wait_s=10.0,
    )
    settings = {"epsilon": 1.0, "lag_limit_ms": LAG_LIMIT_MS, "store_timeout_ms": TIMEOUT_MS, **config}
    running = await build(config_of(folder, **settings), PolicyConfig(), around)
    try:
        yield running
    finally:
        await running.close()


async def rank(running: Running, **fields: Any) -> RankAnswer:
    """One answer of the service."""
    body = {"user": "u1", "context": {"surface": "chat", "locale": "en-GB"}, "budget_ms": BUDGET_MS, **fields}
    return await running.service.rank(
        msgspec.convert(body, RankRequest),
        msgspec.json.encode(body),
        caller="app",
        explain=False,
        arrived_ms=CLOCK.monotonic_ms(),
    )


async def applied(running: Running) -> None:
    """Returns once everything in the log is in effect."""
    log = running.service.owners.log
    await log.wait_durable(log.end)
    running.applier.notify()
    assert await running.applier.wait_applied(log.end, 20.0)


@dataclass
class Load:
    """Open loop: what comes next does not wait for what came before. A call that raises ends the test.

    Args:
        answers: in the order of their end, with when they were asked.
    """

    running: Running
    per_s: float
    seed: int = 0
    answers: list[tuple[float, RankAnswer]] = field(default_factory=list)
    events: int = 0
    _calls: list[asyncio.Task[None]] = field(default_factory=list)

    async def send(self, seconds: float) -> list[RankAnswer]:
        """Sends for so long; the answers to what was asked within."""
        loop, draw = asyncio.get_running_loop(), random.Random(self.seed + len(self._calls))
        started_s = loop.time()
        while (now_s := loop.time()) < started_s + seconds:
            self._calls.append(asyncio.create_task(self._call(draw.randrange(1 << 30))))
            await asyncio.sleep(max(0.0, now_s + draw.expovariate(self.per_s) - loop.time()))
        await self.settle()
        return [answer for asked_s, answer in self.answers if asked_s >= started_s]

    async def settle(self) -> None:
        """Returns once all have been answered."""
        await asyncio.gather(*self._calls)

    @property
    def late(self) -> int:
        """How many ended after their budget, by the server's clock."""
        return sum(answer.timings_ms["total"] > BUDGET_MS for _, answer in self.answers)

    async def _call(self, draw: int) -> None:
        user, number = f"u{draw % 5}", len(self._calls)
        if draw % 7 == 0:
            await self._tell(user, number)
        asked_s = asyncio.get_running_loop().time()
        named = {"id": f"r{number}"} if draw % 2 else {}
        self.answers.append((asked_s, await rank(self.running, user=user, session="s", **named)))

    async def _tell(self, user: str, number: int) -> None:
        event = {
            "event": "interaction",
            "id": f"e{number}",
            "time": format_time(from_seconds(CLOCK.now_s())),
            "user": user,
            "type": "opened",
            "action": "share",
        }
        (answer,) = await self.running.service.ingest([msgspec.json.encode(event)])
        assert answer.status == "accepted"
        self.events += 1


async def until(holds: Callable[[], bool], limit_s: float = 10.0) -> None:
    """Returns once a condition holds that is asked again and again."""
    async with asyncio.timeout(limit_s):
        while not holds():
            await asyncio.sleep(0.01)
