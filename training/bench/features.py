"""`nextaction bench features`: one MGET of packed rows against a read per field, on the embedded store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from features.cells import CELL_BYTES, WIDTH
from features.embedded_store import open_embedded_store
from features.redis_store import RedisStore
from features.store_commands import Command
from training.bench.figures import plain, ratio, spread
from training.errors import TrainingError

START_S = 10.0
TIMEOUT_MS = 1000.0
Read = Callable[[], Awaitable[Any]]


@dataclass(frozen=True)
class FeaturesPlan:
    """Args:
    rows: read at once, each of WIDTH numbers.
    rounds: interleaved.
    reads: per round and way.
    """

    rows: int = 51
    rounds: int = 9
    reads: int = 100


def bench_features(plan: FeaturesPlan) -> dict[str, Any]:
    """CPU of this process and wall time per read of all rows, by way, and each over the MGET's.

    Raises:
        TrainingError: the store does not answer.
    """
    return asyncio.run(_measure(plan))


async def _measure(plan: FeaturesPlan) -> dict[str, Any]:
    store = await asyncio.to_thread(open_embedded_store)
    try:
        await _reach(store)
        keys = await _fill(store, plan.rows)
        ways: dict[str, Read] = {
            "one MGET": lambda: _mget(store, keys),
            "HMGET per row, one pipeline": lambda: _hmget(store, keys),
            "HGET per field, one pipeline": lambda: _hget(store, keys),
        }
        await _check_same(ways)
        return _report(plan, await _rounds(plan, ways))
    finally:
        await store.close()


async def _reach(store: RedisStore) -> None:
    give_up_s = time.monotonic() + START_S
    while True:
        try:
            await store.ping()
            return
        except Exception as error:
            if time.monotonic() > give_up_s:
                raise TrainingError(f"the embedded store does not answer: {error}") from error
        await asyncio.sleep(0.02)


async def _fill(store: RedisStore, rows: int) -> list[bytes]:
    keys = [b"bench:%d" % row for row in range(rows)]
    values = np.random.default_rng(0).random((rows, WIDTH))
    sent: list[Command] = []
    for key, row in zip(keys, values, strict=True):
        sent.append((b"SET", key, row.tobytes()))
        fields = [part for field, value in enumerate(row) for part in (b"%d" % field, repr(float(value)).encode())]
        sent.append((b"HSET", b"h:" + key, *fields))
    await store.raw(sent, TIMEOUT_MS)
    return keys


async def _mget(store: RedisStore, keys: Sequence[bytes]) -> Any:
    (packed,) = await store.raw([(b"MGET", *keys)], TIMEOUT_MS)
    assert len(packed[0]) == CELL_BYTES
    return np.frombuffer(b"".join(packed)).reshape(-1, WIDTH)


async def _hmget(store: RedisStore, keys: Sequence[bytes]) -> Any:
    fields = [b"%d" % field for field in range(WIDTH)]
    rows = await store.raw([(b"HMGET", b"h:" + key, *fields) for key in keys], TIMEOUT_MS)
    return np.array([list(map(float, row)) for row in rows])


async def _hget(store: RedisStore, keys: Sequence[bytes]) -> Any:
    sent = [(b"HGET", b"h:" + key, b"%d" % field) for key in keys for field in range(WIDTH)]
    return np.array(list(map(float, await store.raw(sent, TIMEOUT_MS)))).reshape(-1, WIDTH)


async def _check_same(ways: dict[str, Read]) -> None:
    first, *others = [await read() for read in ways.values()]
    if not all(np.array_equal(first, other) for other in others):
        raise TrainingError("the ways of reading do not read the same")


async def _rounds(plan: FeaturesPlan, ways: dict[str, Read]) -> dict[str, list[tuple[float, float]]]:
    """(CPU, wall) µs per read, by way and round."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(plan.rounds):
        for name, read in ways.items():
            cpu_s, wall_s = time.process_time(), time.perf_counter()
            for _ in range(plan.reads):
                await read()
            cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
            found[name].append((cpu_s * 1e6 / plan.reads, wall_s * 1e6 / plan.reads))
    return found


def _report(plan: FeaturesPlan, found: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    (base, *_) = found.values()
    cpu = {name: [cpu_us for cpu_us, _ in values] for name, values in found.items()}
    wall = {name: [wall_us for _, wall_us in values] for name, values in found.items()}
    report = {
        name: {
            "cpu_us": spread(cpu[name]),
            "wall_us": spread(wall[name]),
            "times_mget": ratio(cpu[name], [cpu_us for cpu_us, _ in base]),
        }
        for name in found
    }
    return {"rows": plan.rows, "fields": WIDTH, "ways": plain(report)}
