"""What `GET /v1/memory` answers: the process, what the service holds, and every pool that registered itself.

    sources.append(PoolSource("second", pool, pages, cache))

An engine that starts appends its source to the list that the application was made with, and removes it when it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ranker.inference.pages import Pages
from ranker.inference.pool import MemoryPool
from ranker.inference.process_memory import ProcessMemory, process_memory
from ranker.inference.profile import MemoryProfile, profile
from ranker.inference.shard_stats import ShardStats


class ShardMemory(msgspec.Struct, frozen=True):
    """A shard cache's bytes, and what came and went since it started."""

    resident_bytes: int
    pinned_bytes: int
    reserved_bytes: int
    resident_by_version: dict[str, int]
    hits: int
    misses: int
    loads: int
    failures: int
    evictions: int


class PoolMemory(msgspec.Struct, frozen=True):
    """One pool by name, with the shards that feed it, if any."""

    name: str
    profile: MemoryProfile
    shards: ShardMemory | None = None


class MemoryReport(msgspec.Struct, frozen=True):
    """The whole answer.

    Args:
        service: sizes of what the service itself holds, by part.
        pools: empty while no engine runs.
    """

    process: ProcessMemory
    service: dict[str, Any]
    pools: list[PoolMemory]


class MemorySource(Protocol):
    """Whatever has a pool."""

    def memory(self, window_s: float) -> PoolMemory:
        """Its figures now; hot spots over the last seconds."""
        ...


class Cache(Protocol):
    """What a report needs of a shard cache."""

    def stats(self) -> ShardStats:
        """The figures now."""
        ...


@dataclass(frozen=True)
class PoolSource:
    """A pool with its pages and its shards."""

    name: str
    pool: MemoryPool
    pages: Pages | None = None
    cache: Cache | None = None

    def memory(self, window_s: float) -> PoolMemory:
        """The pool's profile, and the cache's figures."""
        shards = None if self.cache is None else _shards(self.cache.stats())
        return PoolMemory(self.name, profile(self.pool, self.pages, window_s), shards)


def memory_report(
    sources: Iterable[MemorySource], window_s: float = 60.0, service: Mapping[str, Any] | None = None
) -> MemoryReport:
    """Everything now.

    Args:
        window_s: of the hot spots, above 0.
        service: see `MemoryReport`.

    Raises:
        InvalidSize: the window is not a positive number.
    """
    pools = [source.memory(window_s) for source in tuple(sources)]
    return MemoryReport(process_memory(), dict(service or {}), pools)


def _shards(stats: ShardStats) -> ShardMemory:
    return ShardMemory(
        resident_bytes=stats.resident_bytes,
        pinned_bytes=stats.pinned_bytes,
        reserved_bytes=stats.reserved_bytes,
        resident_by_version=dict(stats.resident_by_version),
        hits=stats.hits,
        misses=stats.misses,
        loads=stats.loads,
        failures=stats.failures,
        evictions=stats.evictions,
    )
