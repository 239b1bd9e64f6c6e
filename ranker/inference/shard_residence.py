"""The shards in memory: their bytes, their pins, and the order in which those without pins would go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from ranker.inference.shard_key import Shard, ShardKey
from ranker.inference.shard_sink import Kept


@dataclass(eq=False, slots=True)
class Resident:
    """A shard in memory."""

    kept: Kept
    nbytes: int
    pins: int = 0

    @property
    def shard(self) -> Shard:
        """What holders of a pin see."""
        return self.kept.shard

    @property
    def key(self) -> ShardKey:
        """Of the shard."""
        return self.kept.shard.key


class Residence:
    """Counts bytes and pins; a shard with a pin is not in the eviction order at all, so it cannot be chosen."""

    def __init__(self) -> None:
        self._all: dict[ShardKey, Resident] = {}
        self._idle: OrderedDict[ShardKey, Resident] = OrderedDict()  # least recently used first
        self.bytes = 0
        self.pinned_bytes = 0

    def __iter__(self) -> Iterator[Resident]:
        return iter(tuple(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: ShardKey) -> Resident | None:
        """The shard if it is in memory."""
        return self._all.get(key)

    def add(self, resident: Resident) -> None:
        """Takes a shard in, with the pins that it already has."""
        assert resident.key not in self._all
        self._all[resident.key] = resident
        self.bytes += resident.nbytes
        if resident.pins:
            self.pinned_bytes += resident.nbytes
        else:
            self._idle[resident.key] = resident

    def pin(self, resident: Resident) -> None:
        """Keeps it from leaving once more."""
        if resident.pins == 0:
            del self._idle[resident.key]
            self.pinned_bytes += resident.nbytes
        resident.pins += 1

    def unpin(self, resident: Resident) -> None:
        """Takes one pin back; after the last one it is the most recently used."""
        assert resident.pins > 0 and self._all.get(resident.key) is resident
        resident.pins -= 1
        if resident.pins == 0:
            self._idle[resident.key] = resident
            self.pinned_bytes -= resident.nbytes

    def remove(self, resident: Resident) -> None:
        """Forgets a shard without pins."""
        assert resident.pins == 0
        del self._all[resident.key], self._idle[resident.key]
        self.bytes -= resident.nbytes

    def oldest(self) -> Resident | None:
        """The least recently used shard without pins."""
        return next(iter(self._idle.values()), None)

    def by_version(self) -> dict[str, int]:
        """Bytes in memory by `model@version`."""
        found: dict[str, int] = {}
        for each in self._all.values():
            found[each.key.model_key] = found.get(each.key.model_key, 0) + each.nbytes
        return found

    def check_integrity(self) -> None:
        """Compares the running figures with a count from the start; for tests."""
        pinned = [each for each in self._all.values() if each.pins]
        assert all(each.pins >= 0 for each in self._all.values()), "pins below zero"
        assert self.bytes == sum(each.nbytes for each in self._all.values()), "resident bytes drifted"
        assert self.pinned_bytes == sum(each.nbytes for each in pinned), "pinned bytes drifted"
        assert self._idle.keys() == self._all.keys() - {each.key for each in pinned}, "a pin in the eviction order"
