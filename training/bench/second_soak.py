"""Page faults and resident memory of the second stage over many requests, with users that come and go.

All of a request's way but HTTP and the stages before: the event in the log, the history that follows it, the window,
the engine, the pages.
"""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ranker.inference.engine import Engine
from ranker.inference.page_names import MAX_EVENTS
from ranker.inference.scheduler_config import SchedulerConfig
from ranker.second.tokens import pack_events
from training.bench.second_rig import MOST_BATCH, Rig, ask_of, engine_of, random_candidates, random_events, rig, small
from training.bench.second_stream import Stream

PARTS = 10
USERS, FITTING = 64, 24.0
"""More than what fits, so that pages are evicted all the time."""
LEAVE = 0.05
"""Share of the requests after which the user is replaced by another."""
FORGET = 0.1
"""Share of those who leave that ask to be forgotten."""
TOGETHER = 8
WARM = 5000
PAGE = resource.getpagesize()


def soak(requests: int, length: int, scheme: str, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Figures after each tenth of the requests, all through the engine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with rig(folder / "models", small(length + 64), scheme=scheme, fitting=FITTING) as found:
            stream = Stream(folder, USERS, length, found.sizes, found.store.pages.forget)
            try:
                return asyncio.run(_soaked(found, stream, requests, tell))
            finally:
                stream.close()
    finally:
        torch.set_num_threads(threads)


async def _soaked(found: Rig, users: Stream, requests: int, tell: Callable[[str], None]) -> dict[str, Any]:
    engine = engine_of(found, SchedulerConfig(max_batch_requests=MOST_BATCH))
    await engine.load(found.paged.key, found.paged)
    following = asyncio.create_task(users.histories.run())
    while not users.histories.caught_up:
        await asyncio.sleep(0.01)
    _fill_names(found)
    await _asked(engine, found, users, min(WARM, requests))
    gc.collect()
    gc.freeze()
    resident, faults, peak = [resident_mib()], [], found.pool.used_bytes
    for part in range(PARTS):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        await _asked(engine, found, users, requests // PARTS)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        faults.append((after - before) / max(requests // PARTS, 1))
        resident.append(resident_mib())
        done = (part + 1) * (requests // PARTS)
        tell(f"{done:,} of {requests:,}: {resident[-1]:.1f} MiB, {faults[-1]:.2f} faults each")
    following.cancel()
    await engine.close()
    found.store.pages.check_integrity()
    found.pool.check_integrity()
    stats = found.store.pages.stats
    return {
        "requests": requests // PARTS * PARTS,
        "resident_mib": resident,
        "grown_mib": resident[-1] - resident[1],
        "faults_per_request": faults,
        "pool_grown_bytes": found.pool.used_bytes - peak,
        "pool_used": found.pool.used_bytes / found.pool.limit_bytes,
        "tokens_found": stats.tokens_reused / max(stats.tokens_reused + stats.tokens_new, 1),
        "waited_for_pages": stats.busy,
        "users": users.joined,
        "users_in_memory": len(users.histories),
        "users_away": users.histories.away,
        "users_lost": users.histories.lost,
    }


def _fill_names(found: Rig) -> None:
    """Names of so many windows that from now on each new one takes the place of another."""
    draw = np.random.default_rng(1)
    candidates = random_candidates(1, draw)
    tokens = random_events(found.sizes.window, found.sizes, draw)
    for number in range(MAX_EVENTS // found.sizes.window + 1):
        found.paged.cost(ask_of(f"named{number}", tokens, pack_events(tokens), len(tokens), candidates))


async def _asked(engine: Engine, found: Rig, users: Stream, count: int) -> None:
    """So many requests, some at a time; now and then a user leaves."""
    key, draw = found.paged.key, users.draw
    for _ in range(count // TOGETHER):
        rows = draw.choice(len(users), TOGETHER, replace=False).tolist()
        asks = [users.ask(row) for row in rows]
        await asyncio.gather(*(engine.submit(engine.request(key, ask, budget_ms=600_000.0), ask) for ask in asks))
        for row in rows:
            if draw.random() < LEAVE:
                users.leave(row, forget=draw.random() < FORGET)


def resident_mib() -> float:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * PAGE / 2**20
