"""A device and a time that move when told, and a model that does as it is told, for the tests of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ranker.inference.batch_run import BatchRun, Work
from ranker.inference.device import Ended
from ranker.inference.engine import Engine, EngineConfig, Holdings, Rejected, Surroundings
from ranker.inference.model import Member, NoHold
from ranker.inference.pool import MemoryPool
from ranker.inference.request import Request
from ranker.inference.scheduler import Scheduler, SchedulerConfig
from ranker.inference.shard_key import Shard, ShardKey
from ranker.inference.shards import ShardCache
from ranker.inference.workspace import Workspace, Workspaces
from tests.ranker.inference.loops import in_loop, run

__all__ = ["Echo", "ManualDevice", "ManualTime", "Stage", "in_loop", "reason", "run", "staged", "turns"]


async def turns(count: int = 12) -> None:
    """Lets everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


class Timer:
    """A timer that rings when the time is moved past it."""

    def __init__(self, at_ms: float, ring: Callable[[], None]) -> None:
        self.at_ms, self.ring, self.cancelled = at_ms, ring, False

    def cancel(self) -> None:
        self.cancelled = True


class ManualTime:
    """Milliseconds that pass only when told."""

    def __init__(self) -> None:
        self.now_ms = 1000.0
        self.timers: list[Timer] = []

    def clock(self) -> float:
        return self.now_ms

    def later(self, delay_ms: float, ring: Callable[[], None]) -> Timer:
        timer = Timer(self.now_ms + delay_ms, ring)
        self.timers.append(timer)
        return timer

    async def advance(self, ms: float) -> None:
        """Moves the time, stopping at each timer on the way."""
        end = self.now_ms + ms
        await turns()
        while due := [timer for timer in self.timers if timer.at_ms <= end and not timer.cancelled]:
            timer = min(due, key=lambda each: each.at_ms)
            self.timers.remove(timer)
            self.now_ms = max(self.now_ms, timer.at_ms)
            timer.ring()
            await turns()
        self.now_ms = end
        await turns()


class ManualDevice:
    """Runs a batch when told to, and begins it `lag_ms` after it was told; `clock` is moved by the test."""

    def __init__(self, workspaces: Workspaces, clock: Callable[[], float]) -> None:
        self.workspaces = workspaces
        self.clock = clock
        self.begun: list[Work] = []
        self.closed = False
        self.lag_ms = 0.0
        self._pending: tuple[Work, Ended] | None = None

    def start(self, work: Work, ended: Ended) -> None:
        assert self._pending is None, "two batches at once"
        self.begun.append(work)
        self._pending = (work, ended)

    def close(self) -> None:
        self.closed = True

    @property
    def busy(self) -> bool:
        return self._pending is not None

    async def finish(self) -> None:
        """Computes the batch now and says so."""
        assert self._pending is not None, "nothing runs"
        (work, ended), self._pending = self._pending, None
        outcome = BatchRun(work, self.workspaces, self.clock).run()
        outcome.begun_ms = work.started_ms + self.lag_ms
        ended(work, outcome)
        await turns()


@dataclass
class Echo:
    """Answers `payload * 2`; records what it ran.

    Args:
        tokens: of a payload.
        poison: payloads for which a batch raises.
    """

    tokens: Callable[[Any], int] = lambda payload: 1
    poison: set[Any] = field(default_factory=set)
    shards: Sequence[ShardKey] = ()
    ran: list[list[Any]] = field(default_factory=list)
    loaded: dict[str, bytes] | None = None
    on_run: Callable[[], None] = lambda: None

    def load(self, shards: Mapping[str, Shard]) -> None:
        self.loaded = {name: bytes(shard.data) for name, shard in shards.items()}

    def unload(self) -> None:
        self.loaded = None

    def cost(self, payload: Any) -> int:
        return self.tokens(payload)

    def hold(self, payload: Any) -> Any:
        return NoHold(self.tokens(payload))

    def run(self, members: Sequence[Member], workspace: Workspace) -> Sequence[Any]:
        payloads = [member.payload for member in members]
        self.ran.append(payloads)
        self.on_run()
        if bad := self.poison.intersection(payloads):
            raise RuntimeError(f"poisoned by {bad}")
        return [payload * 2 for payload in payloads]


@dataclass
class Stage:
    """An engine on a manual device with one model, `m@1`, whose batches cost 10 ms whatever their size."""

    engine: Engine
    device: ManualDevice
    time: ManualTime
    model: Any
    pool: MemoryPool
    ids: int = 0

    def offer(self, payload: Any, budget_ms: float = 100.0, **fields: Any) -> asyncio.Future[Any]:
        return self.engine.offer(self.request(payload, budget_ms, **fields), payload)

    def request(self, payload: Any, budget_ms: float = 100.0, model: str = "m@1", **fields: Any) -> Request:
        self.ids += 1
        fields = {"request_id": f"r{self.ids}", **fields}
        return self.engine.request(model, payload, budget_ms=budget_ms, **fields)

    async def finish(self, took_ms: float = 10.0) -> None:
        await self.time.advance(took_ms)
        await self.device.finish()

    async def run_all(self) -> None:
        """Until nobody waits and nothing runs."""
        await turns()
        for _ in range(500):
            if self.device.busy:
                await self.finish()
            elif self.engine.open_requests:
                await self.time.advance(1.0)
            else:
                return
        raise AssertionError(f"{self.engine.open_requests} callers wait for ever")

    def at_rest(self) -> None:
        """Nothing is open, held or leased."""
        assert self.engine.open_requests == 0
        assert self.engine.metrics()["queued_tokens"] == 0
        assert self.device.workspaces.idle == 1
        self.pool.check_integrity()


async def staged(
    model: Any = None,
    config: SchedulerConfig | None = None,
    limits: EngineConfig | None = None,
    cache: ShardCache | None = None,
) -> Stage:
    config = config or SchedulerConfig(max_batch_tokens=16, max_batch_requests=16, max_wait_ms=0.0)
    time, pool = ManualTime(), MemoryPool(1 << 16)
    device = ManualDevice(Workspaces(pool, 4096), time.clock)
    around = Surroundings(time.clock, time.later)
    engine = Engine(Scheduler(config), device, Holdings(cache, pool), limits, around)
    model = model if model is not None else Echo()
    await engine.load("m@1", model, cost_ms=(10.0, 0.0))
    return Stage(engine, device, time, model, pool)


def reason(future: asyncio.Future[Any]) -> str:
    """Why it was rejected."""
    error = future.exception()
    assert isinstance(error, Rejected), error
    return error.reason
