"""A whole service in this process, on a manual clock and a store in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from features.applier_settings import ApplierSettings
from features.catalogue import ActionSpec
from features.events import Event, RankingEvent, format_time, from_seconds
from features.known import Moment
from features.log import read_log
from features.memory_store import MemoryStore
from features.registry import FINGERPRINT, vectors
from features.store import FeatureStore
from ranker.answers import EventAnswer, RankAnswer
from ranker.build import Running, Surroundings, build
from ranker.clock import ManualClock
from ranker.config import ServeConfig
from ranker.policy_config import PolicyConfig
from ranker.types import RankRequest

QUICK = ApplierSettings(pause_s=0.0, gather_s=0.0, poll_s=0.005, check_s=0.02, back_off_s=(0.001, 0.01))

ACTIONS: dict[str, dict[str, Any]] = {
    "summarize": {"entity_types": ["text"], "surfaces": ["chat"]},
    "crop": {"entity_types": ["image"]},
    "share": {},
    "remind": {"triggers": ["opened"]},
    "translate": {"locales": ["en", "de"], "exclusive_group": "language"},
    "learn": {"exclusive_group": "language"},
}


@dataclass
class VectorModel:
    """Scores by real vectors and remembers what it was shown; no text model."""

    version: str = "3"
    schema: str = FINGERPRINT
    shown: list[tuple[Moment, NDArray[np.float32]]] = field(default_factory=list)

    def score(self, moment: Moment) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        columns = vectors(moment)
        self.shown.append((moment, columns))
        return columns, np.nan_to_num(columns.astype(np.float64), nan=0.0).sum(axis=1)


@dataclass
class Desk:
    """A running service and what a test wants to have its hands on."""

    running: Running
    clock: ManualClock
    store: FeatureStore
    model: VectorModel
    logdir: Path
    prefix: str
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    async def rank(self, caller: str = "app", explain: bool = False, **fields: Any) -> RankAnswer:
        body = {"user": "u1", "context": {"surface": "chat", "locale": "en-GB"}, **fields}
        request = msgspec.convert(body, RankRequest)
        arrived_ms = self.clock.monotonic_ms()
        raw = msgspec.json.encode(body)
        return await self.running.service.rank(request, raw, caller=caller, explain=explain, arrived_ms=arrived_ms)

    async def post(self, *events: Mapping[str, Any]) -> list[EventAnswer]:
        return await self.running.service.ingest([msgspec.json.encode(self.event(**event)) for event in events])

    def event(self, **fields: Any) -> dict[str, Any]:
        """An interaction of u1 now, unless said otherwise."""
        usual = {"event": "interaction", "id": f"{self.prefix}i{next(self._ids)}", "time": self.time(), "user": "u1"}
        kind = {"type": "opened"} if fields.get("event", "interaction") == "interaction" else {}
        return {**usual, **kind, **fields}

    def time(self, ago_s: float = 0.0) -> str:
        return format_time(from_seconds(self.clock.now_s() - ago_s))

    async def applied(self) -> None:
        """Returns once everything in the log is in effect."""
        writer = self.running.service.owners.log
        await writer.wait_durable(writer.end)
        self.running.applier.notify()
        assert await self.running.applier.wait_applied(writer.end, 10.0)

    def logged(self) -> list[Event]:
        return [event for _, event in read_log(self.logdir)]

    def rankings(self) -> list[RankingEvent]:
        return [event for event in self.logged() if isinstance(event, RankingEvent)]


def config_of(tmp_path: Path, **fields: Any) -> ServeConfig:
    """A config whose files are all under a folder."""
    places = {"log_dir": str(tmp_path / "log"), "models_dir": str(tmp_path / "models")}
    return msgspec.convert(
        {**places, "secret_file": str(tmp_path / "secret"), "freeze_gc": False, **fields}, ServeConfig
    )


def specs_of(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, ActionSpec]:
    """Catalogue entries from JSON fields."""
    return {action: msgspec.convert(spec, ActionSpec) for action, spec in fields.items()}


@asynccontextmanager
async def service(
    tmp_path: Path,
    *,
    store: FeatureStore | None = None,
    clock: ManualClock | None = None,
    model: VectorModel | None = None,
    actions: Mapping[str, Mapping[str, Any]] = ACTIONS,
    ids: str = "n",
    **config: Any,
) -> AsyncIterator[Desk]:
    """A running service over a folder; a store that is given outlives it."""
    clock, model = clock or ManualClock(), model or VectorModel()
    kept = store or MemoryStore(clock.now_s)
    numbers = itertools.count()
    around = Surroundings(
        clock=clock,
        environment={},
        store=kept,
        model=model,
        actions=specs_of(actions),
        new_id=lambda: f"{ids}{next(numbers)}",
        applier=QUICK,
        start_wait_s=10.0,
    )
    running = await build(config_of(tmp_path, **config), PolicyConfig(), around)
    try:
        yield Desk(running, clock, kept, model, tmp_path / "log", ids)
    finally:
        await running.close()


def run(work: Awaitable[None], limit_s: float = 30.0) -> None:
    """Runs a test's coroutine, but not for ever."""

    async def with_limit() -> None:
        async with asyncio.timeout(limit_s):
            await work

    asyncio.run(with_limit())
