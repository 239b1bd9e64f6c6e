"""What the shard cache counted: enough to explain why p99 got worse while the hit rate got better."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ranker.inference.shard_key import ShardKey

RETURN_WINDOW_S = 60.0
_MOST_VERSIONS = 64
_LEVELS = frozenset({"resident_bytes", "pinned_bytes", "reserved_bytes", "resident_by_version"})


@dataclass(frozen=True)
class ShardStats:
    """A moment's figures; all but the bytes held and the mean size by version count up from the cache's start.

    It can be read by attribute or, for renderers, as a mapping.

    Args:
        hits: pins that found their shard in memory.
        misses: pins that did not, whether they started a load, joined one or were refused.
        loads: that gave a shard; `failures` did not.
        refused: pins that got Busy.
        evictions: for room; a retired shard that leaves is none.
        returned_within_60s: loads of what was evicted less than a minute before.
        returned_ms: time of those loads.
        cold_loads: first loads of a shard since its version came.
        cold_ms: time of those loads.
        load_ms: from reservation to publication, summed over `loads`; `transfer_ms` of it waiting for the source,
            `verify_ms` hashing, storing and checking.
        load_bytes: summed over `loads`.
        held_past_pin: shards whose memory a holder kept beyond his pin, as they were to go.
        resident_by_version: bytes in memory by `model@version`.
        loads_by_version: loads, bytes_by_version: their bytes, cold_by_version: the cold ones among them.
    """

    hits: int = 0
    misses: int = 0
    loads: int = 0
    failures: int = 0
    refused: int = 0
    evictions: int = 0
    returned_within_60s: int = 0
    returned_ms: float = 0.0
    cold_loads: int = 0
    cold_ms: float = 0.0
    load_ms: float = 0.0
    transfer_ms: float = 0.0
    verify_ms: float = 0.0
    load_bytes: int = 0
    held_past_pin: int = 0
    resident_bytes: int = 0
    pinned_bytes: int = 0
    reserved_bytes: int = 0
    resident_by_version: Mapping[str, int] = field(default_factory=dict)
    loads_by_version: Mapping[str, int] = field(default_factory=dict)
    bytes_by_version: Mapping[str, int] = field(default_factory=dict)
    cold_by_version: Mapping[str, int] = field(default_factory=dict)

    @property
    def pins(self) -> int:
        """Pins asked for."""
        return self.hits + self.misses

    @property
    def hit_rate(self) -> float:
        """Share of pins that found their shard in memory; 1 when there were none."""
        return self.hits / self.pins if self.pins else 1.0

    def since(self, earlier: ShardStats) -> ShardStats:
        """What happened after an earlier snapshot of the same cache; bytes held are those at the end."""
        counted = [name for name in self.keys() if name not in _LEVELS]
        moved: dict[str, Any] = {name: _difference(self[name], earlier[name]) for name in counted}
        return replace(self, **moved)

    def keys(self) -> tuple[str, ...]:
        """The names of the figures."""
        return tuple(each.name for each in fields(self))

    def __getitem__(self, name: str) -> int | float | Mapping[str, int]:
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        value: int | float | Mapping[str, int] = getattr(self, name)
        return value


def _difference(
    later: int | float | Mapping[str, int], earlier: int | float | Mapping[str, int]
) -> int | float | Mapping[str, int]:
    if isinstance(later, Mapping):
        assert isinstance(earlier, Mapping)
        moved = {name: count - earlier.get(name, 0) for name, count in later.items()}
        return {name: count for name, count in moved.items() if count > 0}
    assert not isinstance(earlier, Mapping)
    return later - earlier


@dataclass(frozen=True, slots=True)
class Loaded:
    """A load that gave a shard; times in seconds of the cache's clock."""

    key: ShardKey
    nbytes: int
    started_s: float
    finished_s: float
    transfer_s: float
    verify_s: float


class Tally:
    """Counts as things happen."""

    def __init__(self) -> None:
        self._counts: dict[str, Any] = {}
        self._evicted_s: OrderedDict[ShardKey, float] = OrderedDict()
        self._seen: dict[tuple[str, str], set[str]] = {}
        self._by_version: dict[str, dict[str, int]] = {name: {} for name in ("loads", "bytes", "cold")}

    def add(self, name: str, amount: float = 1) -> None:
        """One more of this figure."""
        self._counts[name] = self._counts.get(name, 0) + amount

    def loaded(self, load: Loaded) -> None:
        """A load gave a shard."""
        took_ms = (load.finished_s - load.started_s) * 1e3
        self.add("loads")
        self.add("load_bytes", load.nbytes)
        self.add("load_ms", took_ms)
        self.add("transfer_ms", load.transfer_s * 1e3)
        self.add("verify_ms", load.verify_s * 1e3)
        cold, returned = self._first_time(load.key), self._returned(load)
        for name, happened in (("cold", cold), ("returned", returned)):
            if happened:
                self.add("cold_loads" if name == "cold" else "returned_within_60s")
                self.add(f"{name}_ms", took_ms)
        for table, amount in (("loads", 1), ("bytes", load.nbytes), ("cold", int(cold))):
            self._count_version(table, load.key.model_key, amount)

    def evicted(self, key: ShardKey, now_s: float) -> None:
        """A shard left for room."""
        self.add("evictions")
        self._evicted_s[key] = now_s
        self._evicted_s.move_to_end(key)
        while now_s - next(iter(self._evicted_s.values())) > RETURN_WINDOW_S:
            self._evicted_s.popitem(last=False)

    def forget_version(self, model: str, version: str) -> None:
        """The version was retired: should it come again, it comes cold."""
        self._seen.pop((model, version), None)

    def snapshot(self, *, resident: Mapping[str, int], pinned_bytes: int, reserved_bytes: int) -> ShardStats:
        """The figures now.

        Args:
            resident: bytes in memory by `model@version`.
        """
        tables: dict[str, Any] = {f"{name}_by_version": dict(counts) for name, counts in self._by_version.items()}
        return ShardStats(
            **self._counts,
            **tables,
            resident_bytes=sum(resident.values()),
            pinned_bytes=pinned_bytes,
            reserved_bytes=reserved_bytes,
            resident_by_version=resident,
        )

    def _first_time(self, key: ShardKey) -> bool:
        seen = self._seen.setdefault((key.model, key.version), set())
        first = key.shard not in seen
        seen.add(key.shard)
        return first

    def _returned(self, load: Loaded) -> bool:
        left_s = self._evicted_s.pop(load.key, None)
        return left_s is not None and load.started_s - left_s <= RETURN_WINDOW_S

    def _count_version(self, table: str, version: str, amount: int) -> None:
        counts = self._by_version[table]
        counts[version] = counts.pop(version, 0) + amount  # the latest last, so that the oldest can go
        if len(counts) > _MOST_VERSIONS:
            del counts[next(iter(counts))]
