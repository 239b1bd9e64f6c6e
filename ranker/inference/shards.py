"""The shard cache: verified model files in a bounded number of bytes, pinned while they are in use.

    loading → verified → resident → leaving

A pin finds its shard, joins the one load of it, or starts that load after reserving its bytes. The load belongs
to no caller: whoever waits may leave, the rest get their shard. All state changes between two awaits on one event
loop, so there is no lock; a flight is in the map before its task can end, and its end is what takes it out.
Bytes held and reserved never exceed the capacity: what does not fit beside the pinned is refused (`Busy`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from ranker.inference.shard_errors import (
    Busy,
    CacheClosed,
    ChecksumMismatch,
    LoadFailed,
    LoadTimedOut,
    ShardTooLarge,
    VersionRetired,
    again,
)
from ranker.inference.shard_flight import Flight
from ranker.inference.shard_key import Check, Shard, ShardKey, ShardSource, State
from ranker.inference.shard_load import Claim, Load, claim_of
from ranker.inference.shard_residence import Residence, Resident
from ranker.inference.shard_retries import Failures, LoadRules
from ranker.inference.shard_sink import Kept, Sink, Sinks
from ranker.inference.shard_stats import Loaded, ShardStats, Tally

__all__ = ["Busy", "ChecksumMismatch", "LoadRules", "Shard", "ShardCache", "ShardKey", "ShardSource"]


class ShardCache:
    """Bytes-bounded LRU of shards with pins; belongs to one event loop at a time.

    Args:
        capacity_bytes: never exceeded by what is in memory and what is being loaded together.
        folder: where shards are kept as files and mapped; of this cache alone. In memory when None.
        check: judges verified content before anyone may use it; by default the source's own `check`, if it has one.
        clock: seconds, monotonic.
        sleep: takes seconds; ends loads that take too long.

    Raises:
        ValueError: the capacity is not a number of bytes.
    """

    def __init__(
        self,
        *,
        capacity_bytes: int,
        source: ShardSource,
        folder: Path | None = None,
        check: Check | None = None,
        rules: LoadRules | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if not isinstance(capacity_bytes, int) or isinstance(capacity_bytes, bool) or capacity_bytes < 0:
            raise ValueError(f"capacity_bytes {capacity_bytes!r} is not a number of bytes")
        self.capacity_bytes = capacity_bytes
        self._source = source
        self._sinks = Sinks(folder)
        self._check: Check | None = check or getattr(source, "check", None)
        self._rules = rules or LoadRules()
        self._clock = clock
        self._sleep = sleep
        self._residence = Residence()
        self._flights: dict[ShardKey, Flight] = {}
        self._reserved_bytes = 0
        self._failures = Failures(self._rules)
        self._retired: set[tuple[str, str]] = set()
        self._closed = False
        self._tally = Tally()

    @asynccontextmanager
    async def pin(self, key: ShardKey) -> AsyncIterator[Shard]:
        """The shard, kept in memory until the block ends.

        Raises:
            Busy: no room beside what is pinned and loading; ShardTooLarge: not even in an empty cache.
            LoadFailed: the load failed, or did so a moment ago; ChecksumMismatch: because of the bytes that came.
            UnknownShard, VersionRetired, CacheClosed: what they say.
        """
        resident = await self._pinned(key)
        try:
            yield resident.shard
        finally:
            self._unpin(resident)

    def retire(self, model: str, version: str) -> None:
        """Takes a version out: no new pins; each shard leaves at its last release, loads nobody waits for end now."""
        self._retired.add((model, version))
        self._tally.forget_version(model, version)
        for resident in self._residence:
            if resident.pins == 0 and self._leaving(resident.key):
                self._drop(resident)
        for flight in tuple(self._flights.values()):
            if flight.abandoned and self._leaving(flight.key):
                flight.give_up(VersionRetired(f"{flight.key}: its version was retired"))

    def readmit(self, model: str, version: str) -> None:
        """Takes `retire` back, for a roll-back, and lets failed or quarantined shards of it be read at once."""
        self._retired.discard((model, version))
        self._failures.forget_version(model, version)

    def quarantined(self) -> tuple[ShardKey, ...]:
        """The shards that came corrupt so often that they are not read for a while."""
        return self._failures.quarantined(self._clock())

    def state(self, key: ShardKey) -> State | None:
        """Where a shard is in its life, None when the cache has nothing of it."""
        if self._residence.get(key) is not None:
            return State.LEAVING if self._leaving(key) else State.RESIDENT
        flight = self._flights.get(key)
        return flight.load.trace.state if flight is not None else None

    def stats(self) -> ShardStats:
        """The figures now."""
        held = self._residence
        return self._tally.snapshot(
            resident=held.by_version(), pinned_bytes=held.pinned_bytes, reserved_bytes=self._reserved_bytes
        )

    async def aclose(self) -> None:
        """Ends all loads and drops all shards; those still pinned leave at their last release."""
        self._closed = True
        flights = tuple(self._flights.values())
        for flight in flights:
            flight.give_up(CacheClosed(f"{flight.key}: the cache was closed"))
        for resident in self._residence:
            if resident.pins == 0:
                self._drop(resident)
        for flight in flights:
            await flight.settled.wait()

    def check_integrity(self) -> None:
        """Compares the running figures with a count from the start; for tests."""
        self._residence.check_integrity()
        assert self._reserved_bytes == sum(flight.nbytes for flight in self._flights.values()), "reserved bytes drifted"
        assert self._residence.bytes + self._reserved_bytes <= self.capacity_bytes, "over capacity"
        assert not any(each.key in self._flights for each in self._residence), "in memory and loading at once"
        assert not any(each.pins == 0 and self._leaving(each.key) for each in self._residence), "did not leave"

    async def _pinned(self, key: ShardKey) -> Resident:
        resident = self._pin_resident(key)
        self._tally.add("hits" if resident else "misses")
        while resident is None:
            flight = self._flights.get(key)
            if flight is None and (flight := self._start_unless_full(key)) is None:
                # nobody waits for the load that has the room: see it end, and look again
                await self._ending_abandoned().settled.wait()
                resident = self._pin_resident(key)
                continue
            if flight.doom is not None:
                raise again(flight.doom)
            resident = await self._landing(flight)
        return resident

    def _pin_resident(self, key: ShardKey) -> Resident | None:
        if self._closed:
            raise CacheClosed(f"{key}: the cache is closed")
        if self._leaving(key):
            raise VersionRetired(f"{key}: its version was retired and takes no new pins")
        resident = self._residence.get(key)
        if resident is not None:
            self._residence.pin(resident)
        return resident

    async def _landing(self, flight: Flight) -> Resident:
        """Waits for a load alone: a cancel here ends this wait and nothing else."""
        waiter = flight.join()
        try:
            return await waiter
        except asyncio.CancelledError:
            flight.waiters.discard(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._unpin(waiter.result())  # published for us in the moment we were cancelled
            raise

    def _start_unless_full(self, key: ShardKey) -> Flight | None:
        """Starts a load, or None when only loads that nobody waits for are in its way."""
        if (standing := self._failures.standing(key, self._clock())) is not None:
            raise standing
        try:
            claim = claim_of(self._source, key)
        except LoadFailed as error:
            self._failed(key, error)
            raise
        if claim.nbytes > self._free_bytes():
            self._refuse_hopeless(claim)
            return None
        while self._residence.bytes + self._reserved_bytes + claim.nbytes > self.capacity_bytes:
            self._evict_oldest()
        return self._start(claim)

    def _free_bytes(self) -> int:
        """Room that is there or can be made at once."""
        return self.capacity_bytes - self._residence.pinned_bytes - self._reserved_bytes

    def _refuse_hopeless(self, claim: Claim) -> None:
        abandoned = sum(flight.nbytes for flight in self._flights.values() if flight.abandoned)
        if claim.nbytes <= self._free_bytes() + abandoned:
            return
        self._tally.add("refused")
        if claim.nbytes > self.capacity_bytes:
            raise ShardTooLarge(f"{claim.key}: {claim.nbytes} bytes never fit in {self.capacity_bytes}")
        raise Busy(
            f"{claim.key}: {claim.nbytes} bytes do not fit: of {self.capacity_bytes}, "
            f"{self._residence.pinned_bytes} are pinned and {self._reserved_bytes} being loaded"
        )

    def _ending_abandoned(self) -> Flight:
        flight = next(flight for flight in self._flights.values() if flight.abandoned)
        flight.give_up(Busy(f"{flight.key}: its load was ended for want of room, as nobody waited for it"))
        return flight

    def _start(self, claim: Claim) -> Flight:
        load = Load(claim, self._source, self._open_sink, self._check, self._clock)
        flight = Flight(load, self._clock())
        self._flights[claim.key] = flight  # before the task, which may be over before we see it
        self._reserved_bytes += claim.nbytes
        flight.task = asyncio.get_running_loop().create_task(load.run(), name=f"load {claim.key}")
        if self._rules.timeout_s is not None:
            flight.timer = asyncio.get_running_loop().create_task(self._expire(flight, self._rules.timeout_s))
        flight.task.add_done_callback(partial(self._landed, flight))
        return flight

    async def _expire(self, flight: Flight, timeout_s: float) -> None:
        await self._sleep(timeout_s)
        flight.give_up(LoadTimedOut(f"{flight.key}: the source did not end within {timeout_s:g} s"))
        flight.settled.set()  # should the source not even end now, its bytes stay reserved but nobody waits for them

    def _open_sink(self, claim: Claim) -> Sink:
        return self._sinks.open(claim.key, claim.nbytes)

    def _landed(self, flight: Flight, task: asyncio.Task[Kept]) -> None:
        """The one place where a flight ends, however its task did."""
        assert self._flights.pop(flight.key) is flight
        self._reserved_bytes -= flight.nbytes
        if flight.timer is not None:
            flight.timer.cancel()
        if (error := flight.failure()) is None:
            self._publish(flight, task.result())
        else:
            _discard(task)
            if isinstance(error, LoadFailed):
                self._failed(flight.key, error)
            flight.fail(error)
        flight.settled.set()

    def _publish(self, flight: Flight, kept: Kept) -> None:
        """Makes it resident, already pinned for those who wait."""
        self._failures.forget(flight.key)
        trace = flight.load.trace
        self._tally.loaded(
            Loaded(flight.key, flight.nbytes, flight.started_s, self._clock(), trace.transfer_s, trace.verify_s)
        )
        resident = Resident(kept, flight.nbytes, flight.pins())
        self._residence.add(resident)
        flight.publish(resident)
        if resident.pins == 0 and self._leaving(flight.key):
            self._drop(resident)

    def _failed(self, key: ShardKey, error: LoadFailed) -> None:
        self._tally.add("failures")
        self._failures.record(key, error, self._clock())

    def _leaving(self, key: ShardKey) -> bool:
        return self._closed or (key.model, key.version) in self._retired

    def _unpin(self, resident: Resident) -> None:
        self._residence.unpin(resident)
        if resident.pins == 0 and self._leaving(resident.key):
            self._drop(resident)

    def _evict_oldest(self) -> None:
        resident = self._residence.oldest()
        assert resident is not None, "room was counted that is not there"
        self._drop(resident)
        self._tally.evicted(resident.key, self._clock())

    def _drop(self, resident: Resident) -> None:
        self._residence.remove(resident)
        if not resident.kept.free():
            self._tally.add("held_past_pin")


def _discard(task: asyncio.Task[Kept]) -> None:
    """Lets go of a shard that came although its load was given up."""
    if not task.cancelled() and task.exception() is None:
        task.result().free()
