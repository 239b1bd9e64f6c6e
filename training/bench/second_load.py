"""How many requests a second the second stage answers in time, with pages and batches and with neither.

An open loop in the process of the engine: one thread computes, the event loop has the other core. A rate is sustained
when 99 of 100 requests are answered within 100 ms of when they were due; what was turned away was not answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ranker.inference.engine import Engine
from ranker.inference.engine_errors import EngineError, Rejected
from ranker.inference.scheduler_config import SchedulerConfig
from ranker.second.config import Sizes
from ranker.second.device import GROUP
from ranker.second.forward import workspace_bytes
from ranker.second.paged import Ask, kv_spec
from training.bench.figures import percentile, ratio, spread
from training.bench.second_rig import (
    MIB,
    PAGE_TOKENS,
    Recomputing,
    Users,
    bare_engine,
    engine_of,
    random_net,
    rig,
    small,
)

DEADLINE_MS, SHARE = 100.0, 0.99
HEADROOM = 64
"""Events that a history grows before it begins anew."""
SKEW = 1.0
"""Exponent of how often users come back where memory is capped."""
MOST_USED = 0.85


@dataclass(frozen=True)
class Load:
    """How long each figure takes.

    Args:
        seconds: of each try of a rate.
        steps: of the bisection.
        users: whose histories are asked about.
    """

    rounds: int = 3
    seconds: float = 4.0
    steps: int = 6
    users: int = 32


@dataclass
class Side:
    """One way to serve, with users of its own so that both see the same."""

    engine: Engine
    key: str
    users: Users
    draw: np.random.Generator
    odds: Any = None
    failed: dict[str, int] = field(default_factory=dict)

    def row(self) -> int:
        """Who asks next."""
        return int(self.draw.choice(len(self.users), p=self.odds))

    def ask(self) -> Ask:
        """What is asked next."""
        return self.users.ask(self.row())


def throughput(length: int, load: Load, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Requests a second with pages and batches on, and off, in turns; all users' pages fit."""
    memory_mib = _pages_mib(length, load.users * 1.5)
    return asyncio.run(_compared(length, load, folder, tell, memory_mib, skewed=False))


def capped(length: int, load: Load, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """The same where the pages of half of the users fit, and some users come back more often than others."""
    memory_mib = _pages_mib(length, load.users * 0.5)
    return asyncio.run(_compared(length, load, folder, tell, memory_mib, skewed=True))


async def _compared(
    length: int, load: Load, folder: Path, tell: Callable[[str], None], memory_mib: float, *, skewed: bool
) -> dict[str, Any]:
    sizes = small(length + HEADROOM)
    odds = np.arange(1, load.users + 1) ** -SKEW if skewed else np.ones(load.users)
    odds = odds / odds.sum()
    with rig(folder / f"load-{length}-{memory_mib:.0f}", sizes, memory_mib=memory_mib) as found:
        model = Recomputing(random_net(sizes))
        limits = SchedulerConfig(max_batch_requests=16, max_batch_tokens=max(4096, sizes.window + 1000))
        alone = SchedulerConfig(max_batch_requests=1, max_batch_tokens=max(4096, sizes.window + 1000), max_wait_ms=0.0)
        on = Side(engine_of(found, limits), found.paged.key, _users(load, length, sizes), _draw(), odds)
        off = Side(bare_engine(model, alone, sizes), model.key, _users(load, length, sizes), _draw(), odds)
        await on.engine.load(found.paged.key, found.paged)
        await off.engine.load(model.key, model)
        await _warm(on, load.users)
        await _warm(off, 2)
        stats = found.store.pages.stats
        before = stats.tokens_reused, stats.tokens_new
        rates: dict[str, list[float]] = {"on": [], "off": []}
        for number in range(load.rounds):
            for name, side in (("on", on), ("off", off)):
                rates[name].append(await _sustained(side, load, number))
                tell(f"{length} events, round {number + 1}, {name}: {rates[name][-1]:.1f}/s")
        reused, new = stats.tokens_reused - before[0], stats.tokens_new - before[1]
        used = found.pool.used_bytes / found.pool.limit_bytes
        await on.engine.close()
        await off.engine.close()
        found.store.pages.check_integrity()
    return {
        "length": length,
        "users": load.users,
        "memory_mib": memory_mib,
        "per_s": spread(rates["on"]),
        "per_s_off": spread(rates["off"]),
        "multiple": ratio(rates["on"], rates["off"]),
        "tokens_found": reused / max(reused + new, 1),
        "memory_used": used,
        "memory_within": used <= MOST_USED,
        "pages_busy": stats.busy,
        "failed": on.failed,
        "failed_off": off.failed,
    }


async def _sustained(side: Side, load: Load, seed: int) -> float:
    """The highest rate of a bisection that is sustained; 0 where not even the lowest is."""
    start_s = time.perf_counter()
    for _ in range(8):
        await side.engine.submit(side.engine.request(side.key, ask := side.ask(), budget_ms=60_000.0), ask)
    low, high = 0.0, 1.5 * 8 / (time.perf_counter() - start_s)
    for step in range(load.steps):
        rate = (low + high) / 2 if step else high / 1.5
        if await _holds(side, rate, load.seconds, seed * 100 + step):
            low = rate
            if rate >= high / 1.05:
                high *= 1.5
        else:
            high = rate
    return low


async def _holds(side: Side, rate: float, seconds: float, seed: int) -> bool:
    """Whether so many requests a second are answered in time."""
    took_ms = await _offered(side, rate, seconds, seed)
    return bool(took_ms) and percentile(took_ms, SHARE) <= DEADLINE_MS


async def _offered(side: Side, rate: float, seconds: float, seed: int) -> list[float]:
    """Milliseconds from when each request was due to its answer; without end for those that had none."""
    draw = np.random.default_rng(seed)
    gaps = draw.exponential(1.0 / rate, max(int(rate * seconds), 20))
    took_ms: list[float] = []
    waiting = []
    due_s = time.perf_counter()
    for gap in gaps.tolist():
        due_s += gap
        await asyncio.sleep(max(due_s - time.perf_counter(), 0.0))
        waiting.append(asyncio.create_task(_one(side, side.ask(), due_s, took_ms)))
    await asyncio.gather(*waiting)
    return took_ms


async def _one(side: Side, ask: Ask, due_s: float, took_ms: list[float]) -> None:
    left_ms = DEADLINE_MS - (time.perf_counter() - due_s) * 1e3
    try:
        await side.engine.submit(side.engine.request(side.key, ask, budget_ms=max(left_ms, 0.0)), ask)
    except EngineError as error:
        name = error.reason if isinstance(error, Rejected) else type(error).__name__
        side.failed[name] = side.failed.get(name, 0) + 1
        took_ms.append(float("inf"))
    else:
        took_ms.append((time.perf_counter() - due_s) * 1e3)


async def _warm(side: Side, users: int) -> None:
    """Each user once, the one who comes most often last; the engine learns what batches cost."""
    for row in reversed(range(users)):
        ask = side.users.ask(row)
        await side.engine.submit(side.engine.request(side.key, ask, budget_ms=60_000.0), ask)


def _users(load: Load, length: int, sizes: Sizes) -> Users:
    return Users(load.users, length, sizes)


def _draw() -> np.random.Generator:
    return np.random.default_rng(7)


def _pages_mib(length: int, users: float) -> float:
    """A pool in which the pages of so many histories fit beside the rest, of which 85 % are used."""
    sizes = small(length + HEADROOM)
    spec = kv_spec("int8", sizes, PAGE_TOKENS, GROUP)
    full = users * -(-(length + HEADROOM) // PAGE_TOKENS) * spec.page_bytes
    tails = max(2.0 * users, 40.0) * spec.tail_bytes
    wanted = max(full / 0.75, tails / 0.25)
    shapes = Recomputing.shapes_of(sizes)
    return (wanted + 2 * workspace_bytes(sizes, shapes) + 4 * MIB) / MOST_USED / MIB
