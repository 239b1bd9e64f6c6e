"""The engine of one device: callers await results, a thread computes them, and the scheduler says which and when.

    engine = open_engine(SchedulerConfig(), pool, workspace_bytes=1 << 20, cache=cache)
    await engine.load("m@1", model)
    result = await engine.submit(engine.request("m@1", payload, budget_ms=50.0), payload)

`ranker/inference/model.py` says how a model is made for it.

The scheduler, the tickets and the versions belong to the event loop; the device's thread sees one batch at a time.

A caller who leaves cancels his future: what waits leaves the queue at once, what was dispatched and not begun is not
computed, what runs ends unheard. Nothing is answered after its deadline, and nobody waits for ever: a batch that does
not end is given up, its callers and the queue are told, and new requests are refused until the device comes back.

Of the process, not of the engine: `sys.setswitchinterval(0.0005)` shortens what a busy loop costs the device's thread;
`gc.freeze()` after the models are loaded keeps a full collection short; a model's own threads (OMP_NUM_THREADS, or
torch.set_num_threads, given as `begin`) should leave one core to the loop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ranker.inference.device import Begin, Device, ThreadDevice, monotonic_ms
from ranker.inference.driver import Driver, Parts, Surroundings
from ranker.inference.engine_config import EngineConfig
from ranker.inference.engine_errors import DeviceStuck, EngineError, ModelFailed, Rejected, VersionRefused
from ranker.inference.engine_stats import EngineStats
from ranker.inference.gate import Gate
from ranker.inference.memory_report import PoolSource
from ranker.inference.model import Model, Payload, Result
from ranker.inference.pages import Pages
from ranker.inference.pool import MemoryPool
from ranker.inference.request import Request
from ranker.inference.scheduler import Scheduler, SchedulerConfig
from ranker.inference.shards import ShardCache
from ranker.inference.tickets import Ticket
from ranker.inference.versions import Versions
from ranker.inference.workspace import Workspaces

__all__ = [
    "DeviceStuck",
    "Engine",
    "EngineConfig",
    "EngineError",
    "Holdings",
    "ModelFailed",
    "Rejected",
    "Surroundings",
    "VersionRefused",
    "open_engine",
]


POOL_FIGURES = ("capacity_bytes", "used_bytes", "reserved_bytes", "peak_bytes", "largest_run_bytes")


def open_engine(
    config: SchedulerConfig,
    pool: MemoryPool,
    *,
    workspace_bytes: int,
    cache: ShardCache | None = None,
    pages: Pages | None = None,
    limits: EngineConfig | None = None,
    begin: Begin | None = None,
) -> Engine:
    """An engine with a thread of its own, and one workspace from the pool.

    Args:
        workspace_bytes: for the largest batch.
        pages: of the models' histories, for the reports.
        begin: called on the device's thread before its first batch, such as `lambda: torch.set_num_threads(1)`.

    Raises:
        PoolExhausted: the workspace does not fit.
    """
    device = ThreadDevice(Workspaces(pool, workspace_bytes), monotonic_ms, begin)
    return Engine(Scheduler(config), device, Holdings(cache, pool, pages), limits)


@dataclass(frozen=True)
class Holdings:
    """What the engine reads from and reports on.

    Args:
        cache: shards, of this engine alone; None where no model has any.
        pool: of the device; None where nobody asks.
        pages: of the models' histories; None where they keep none.
    """

    cache: ShardCache | None = None
    pool: MemoryPool | None = None
    pages: Pages | None = None


class Engine:
    """Serves the versions of one device; used from one event loop."""

    def __init__(
        self,
        scheduler: Scheduler,
        device: Device,
        holdings: Holdings | None = None,
        limits: EngineConfig | None = None,
        around: Surroundings | None = None,
    ) -> None:
        around = around or Surroundings()
        self.clock = around.clock
        self.stats = EngineStats()
        self._holdings = holdings or Holdings()
        self._versions = Versions(self._holdings.cache)
        self._gate = Gate(self._versions, self.stats, self.clock)
        parts = Parts(self._versions, self.stats, self._gate)
        self._driver = Driver(scheduler, device, parts, limits or EngineConfig(), around)

    @property
    def healthy(self) -> bool:
        """Whether the device answers."""
        return self._driver.stuck is None

    @property
    def open_requests(self) -> int:
        """Callers that wait."""
        return len(self._driver.tickets)

    async def load(
        self,
        model_key: str,
        model: Model,
        *,
        cost_ms: tuple[float, float] | None = None,
        warm: Sequence[Payload] = (),
    ) -> None:
        """Makes a version ready to serve; those that serve go on meanwhile.

        Args:
            cost_ms: what a batch costs, fixed and per token, where that is known; else the first batches find out.
            warm: run one by one on the device before anybody may ask, the largest first: first calls are slow, and a
                version that fails on one of them is refused with that error.

        Raises:
            VersionRefused: it is there already. Other errors are the cache's or the model's.
        """
        if cost_ms is not None:
            self._driver.scheduler.seed_cost(model_key, fixed_ms=cost_ms[0], per_token_ms=cost_ms[1])
        await self._versions.load(model_key, model, lambda: self._warm(model_key, warm))

    async def retire(self, model_key: str) -> None:
        """Takes a version out of service; returns when all it was asked is answered.

        Raises:
            VersionRefused: it is not served.
        """
        await self._versions.retire(model_key)

    def request(
        self,
        model_key: str,
        payload: Payload,
        *,
        priority: str = "normal",
        budget_ms: float | None = None,
        request_id: str | None = None,
    ) -> Request:
        """A request that arrives now and costs what the model says.

        Args:
            budget_ms: how long the caller will wait, 0 included; None: as long as is usual for the priority.

        Raises:
            Rejected: no such version is served, or the payload could never run.
        """
        return self._gate.request(model_key, payload, priority=priority, budget_ms=budget_ms, request_id=request_id)

    async def submit(self, request: Request, payload: Payload) -> Result:
        """The model's result, in time.

        Raises:
            Rejected: it did not run, or not in time; says why and when to try again.
            ModelFailed: the model raised for it.
            DeviceStuck: its batch did not end.
        """
        return await self.offer(request, payload)

    def offer(self, request: Request, payload: Payload) -> asyncio.Future[Result]:
        """The same as a future, for callers without a task of their own; cancelling it is leaving."""
        return self._admit(request, payload, self._gate.refusal(request, self._driver.tickets))

    async def close(self) -> None:
        """Takes no more, lets what was let in end for `drain_ms`, and tells the rest that the engine is closing.

        No caller is left waiting; a device that hangs is waited for no longer than `stuck_after_ms`.
        """
        driver = self._driver
        self._gate.closing = True
        await driver.drained(driver.limits.drain_ms)
        driver.dismiss()
        await driver.drained(driver.limits.stuck_after_ms)
        driver.stop()
        if driver.stuck is None:  # else the device may still read the shards
            await self._versions.close()

    def memory_source(self, name: str) -> PoolSource:
        """What `GET /v1/memory` lists under this name while the engine runs: its pool, its pages and its shards."""
        held = self._holdings
        assert held.pool is not None, "an engine without a pool has no memory to report"
        return PoolSource(name, held.pool, held.pages, held.cache)

    def metrics(self) -> dict[str, Any]:
        """All figures, as plain as JSON; see `EngineStats.snapshot`. What lies in the pool is `profile`'s to say.

        `cost_ms` is the prediction for one token and for a full batch; None where it is not known.
        """
        driver, scheduler, stages = self._driver, self._driver.scheduler, self._versions.stages()
        most = scheduler.config.max_batch_tokens
        cache, pool = self._holdings.cache, self._holdings.pool
        return {
            **self.stats.snapshot(),
            "healthy": self.healthy,
            "closing": self._gate.closing,
            "open": len(driver.tickets),
            "queued": scheduler.queued_by_priority(),
            "queued_tokens": scheduler.queued_tokens,
            "running": len(driver.running.tickets) if driver.running is not None else 0,
            "versions": stages,
            "handoff_ms": {"typical": driver.handoff.typical_ms, "worst": driver.handoff.worst_ms},
            "cost_ms": {
                key: {"one": scheduler.predicted_ms(key, 1), "full": scheduler.predicted_ms(key, most)}
                for key in stages
            },
            "shards": msgspec.to_builtins(cache.stats()) if cache is not None else None,
            "pool": {name: getattr(pool, name) for name in POOL_FIGURES} if pool is not None else None,
            "pages": _page_figures(self._holdings.pages),
        }

    def _admit(self, request: Request, payload: Payload, refusal: Rejected | None) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.stats.counts["offered"] += 1
        if refusal is not None:
            future.set_exception(refusal)
            return future
        ticket = Ticket(request, payload, future)
        self._versions.use(request.model_key)
        self._driver.tickets.open(ticket)
        self._driver.admit(ticket)
        return future

    async def _warm(self, model_key: str, payloads: Sequence[Payload]) -> None:
        for payload in payloads:
            request = self.request(model_key, payload, budget_ms=math.inf)
            await self._admit(request, payload, self._gate.shut(request.request_id))


def _page_figures(pages: Pages | None) -> dict[str, Any] | None:
    if pages is None:
        return None
    return {**msgspec.to_builtins(pages.counts()), **msgspec.to_builtins(pages.stats), "open": pages.open_histories}
