"""A source that does as it is told, and a time that stands still, for the tests of the shard cache."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from ranker.inference.shard_key import ShardKey
from ranker.inference.shards import ShardCache
from tests.ranker.inference.loops import in_loop, run

__all__ = [
    "Holder",
    "ManualTime",
    "ScriptedSource",
    "at_rest",
    "cache_of",
    "content_of",
    "held",
    "in_loop",
    "key",
    "read",
    "run",
    "turns",
]


def key(shard: str = "0", version: str = "1", model: str = "m") -> ShardKey:
    return ShardKey(model=model, version=version, shard=shard)


def content_of(name: ShardKey, nbytes: int) -> bytes:
    """Bytes that differ from key to key."""
    seed = hashlib.sha256(str(name).encode()).digest()
    return (seed * (nbytes // len(seed) + 1))[:nbytes]


class ManualTime:
    """Seconds that pass only when told; sleepers wake in order."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now_s + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        self.now_s += seconds
        due = [each for each in self._sleepers if each[0] <= self.now_s]
        self._sleepers = [each for each in self._sleepers if each[0] > self.now_s]
        for _, woken in due:
            if not woken.done():
                woken.set_result(None)
        await turns()


class ScriptedSource:
    """Shards of made-up bytes.

    `gated`: each chunk waits for `feed`. `scripts[key]`: what the next loads of a key give instead: chunks, or an
    error to raise in their midst. `sizes` and `checksums`: lies of the manifest.
    """

    def __init__(self, sizes: dict[ShardKey, int], *, pieces: int = 2, gated: bool = False) -> None:
        self.contents = {name: content_of(name, nbytes) for name, nbytes in sizes.items()}
        self.pieces = pieces
        self.gated = gated
        self.sizes: dict[ShardKey, Any] = {}
        self.checksums: dict[ShardKey, Any] = {}
        self.scripts: dict[ShardKey, deque[Iterable[Any]]] = {}
        self.starts: Counter[ShardKey] = Counter()
        self.running: Counter[ShardKey] = Counter()
        self.on_chunk: Callable[[], None] = lambda: None
        self._gates: dict[ShardKey, deque[asyncio.Future[None]]] = {}

    def script(self, name: ShardKey, *loads: Iterable[Any]) -> None:
        self.scripts.setdefault(name, deque()).extend(loads)

    def size(self, name: ShardKey) -> int:
        return self.sizes.get(name, len(self.contents[name]))  # type: ignore[no-any-return]

    def sha256(self, name: ShardKey) -> str:
        return self.checksums.get(name, hashlib.sha256(self.contents[name]).hexdigest())  # type: ignore[no-any-return]

    async def chunks(self, name: ShardKey) -> AsyncIterator[bytes]:
        self.starts[name] += 1
        self.running[name] += 1
        assert self.running[name] == 1, f"two loads of {name} at once"
        try:
            for chunk in self._script(name):
                if self.gated:
                    await self._gate(name)
                self.on_chunk()
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
        finally:
            self.running[name] -= 1

    def feed(self, name: ShardKey) -> bool:
        """Lets one waiting chunk through; False when none waits."""
        gates = self._gates.get(name, deque())
        while gates:
            gate = gates.popleft()
            if not gate.done():
                gate.set_result(None)
                return True
        return False

    async def feed_all(self, name: ShardKey) -> None:
        await turns()
        while self.feed(name):
            await turns()

    async def _gate(self, name: ShardKey) -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gates.setdefault(name, deque()).append(gate)
        await gate

    def _script(self, name: ShardKey) -> Iterable[Any]:
        if self.scripts.get(name):
            return self.scripts[name].popleft()
        whole = self.contents[name]
        step = max(1, -(-len(whole) // self.pieces))
        return [whole[start : start + step] for start in range(0, len(whole), step)]


class Holder:
    """A task that pins a shard and keeps it until told."""

    def __init__(self, cache: ShardCache, name: ShardKey) -> None:
        self.key = name
        self.content: bytes | None = None
        self._leave = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._hold(cache))

    async def _hold(self, cache: ShardCache) -> None:
        async with cache.pin(self.key) as shard:
            self.content = bytes(shard.data)
            await self._leave.wait()
            assert bytes(shard.data) == self.content, "a pinned shard changed"

    @property
    def holding(self) -> bool:
        return self.content is not None and not self.task.done()

    async def release(self) -> None:
        self._leave.set()
        await self.task

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    async def error(self) -> BaseException | None:
        await asyncio.wait({self.task})
        return self.task.exception()


async def held(cache: ShardCache, name: ShardKey) -> Holder:
    holder = Holder(cache, name)
    await turns()
    assert holder.holding
    return holder


async def read(cache: ShardCache, name: ShardKey) -> bytes:
    async with cache.pin(name) as shard:
        return bytes(shard.data)


async def turns(count: int = 30) -> None:
    """Lets everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


def at_rest(cache: ShardCache) -> None:
    """Nothing is pinned, reserved or in flight."""
    cache.check_integrity()
    stats = cache.stats()
    assert (stats.pinned_bytes, stats.reserved_bytes) == (0, 0)


def cache_of(source: Any, time: ManualTime, capacity_bytes: int = 10, **fields: Any) -> ShardCache:
    """A cache in a time that stands still."""
    return ShardCache(capacity_bytes=capacity_bytes, source=source, clock=time.clock, sleep=time.sleep, **fields)
