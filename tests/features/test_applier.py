"""The applier: what a store holds after it is what replaying the log in memory holds."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from features import rebuild as rebuilding
from features import rows
from features.applier import Applier
from features.applier_settings import ApplierSettings
from features.errors import LogUnavailable, StoreError, StoreTimeout, StoreUnavailable
from features.events import Event, UserEvent, encode_event, from_seconds
from features.log import LogWriter
from features.log_writer import FileCalls
from features.memory_store import MemoryStore
from features.rebuild import rebuild
from features.state import RowSet, State
from features.store import Commit, Snapshot
from features.store_marks import GENERATION
from tests.features import oracle
from tests.features.oracle import end_of
from tests.features.streams import EventStream, write_log

QUICK = ApplierSettings(batch_events=17, pause_s=0.0, poll_s=0.01, check_s=0.02, back_off_s=(0.001, 0.01))


class ShakyStore(MemoryStore):
    """A store that fails when told, before or after it has done its work."""

    def __init__(self) -> None:
        super().__init__()
        self.fail_before: list[StoreError] = []
        self.fail_after: list[StoreError] = []
        self.fail_reads: list[StoreError] = []

    async def commit(self, commit: Commit) -> None:
        if self.fail_before:
            raise self.fail_before.pop()
        await super().commit(commit)
        if self.fail_after:
            raise self.fail_after.pop()

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        if self.fail_reads:
            raise self.fail_reads.pop()
        return await super().read(keys, timeout_ms)


def applier_of(logdir: Path, store: MemoryStore, durable: Callable[[], int] | None = None) -> Applier:
    end = end_of(logdir)
    return Applier(logdir, durable or (lambda: end), store, monotonic_ms=lambda: 0.0, settings=QUICK)


async def assert_holds_the_log(store: MemoryStore, logdir: Path) -> None:
    await oracle.assert_holds_the_log(store, logdir, set(store._rows))


def run(work: Awaitable[None]) -> None:
    async def with_limit() -> None:
        async with asyncio.timeout(20):
            await work

    asyncio.run(with_limit())


async def running(applier: Applier, until: int) -> None:
    task = asyncio.create_task(applier.run())
    try:
        assert await applier.wait_applied(until, 10.0)
    finally:
        task.cancel()
        await asyncio.wait([task])
        applier.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_store_holds_what_replay_in_memory_holds_key_by_key(seed: int, tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(seed).take(900))

    async def work() -> None:
        store = MemoryStore()
        applier = applier_of(tmp_path, store, durable=lambda: 0)
        await applier.recover()
        applier._written = lambda: 900
        await running(applier, 900)
        assert applier.counts.rebuilds == 1, "only the empty one at the start"
        await assert_holds_the_log(store, tmp_path)

    run(work())


@pytest.mark.parametrize("seed", range(2))
def test_a_restart_in_the_middle_makes_no_difference(seed: int, tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(seed).take(800))

    async def work() -> None:
        store = MemoryStore()
        for stop in (0, 150, 151, 400, 800):
            applier = applier_of(tmp_path, store, durable=lambda stop=stop: stop)  # type: ignore[misc]
            await applier.recover()
            assert applier.applied == stop
            assert applier.counts.rebuilds == (stop == 0)
            applier.close()
        await assert_holds_the_log(store, tmp_path)

    run(work())


@pytest.mark.parametrize("seed", range(2))
def test_a_rebuild_gives_what_applying_gives(seed: int, tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(seed).take(700))

    async def work() -> None:
        store = MemoryStore()
        seen: list[tuple[int, int]] = []
        rebuilt = await rebuild(tmp_path, store, "g", progress=lambda events, written: seen.append((events, written)))
        assert (rebuilt.applied, rebuilt.events) == (700, 700)
        assert seen[-1] == (700, rebuilt.rows + rebuilt.cells)
        assert rebuilt.skipped["duplicate"] > 0
        await assert_holds_the_log(store, tmp_path)

    run(work())


def test_a_store_that_comes_back_empty_is_filled_again(tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(1).take(300))

    async def work() -> None:
        store = MemoryStore()
        applier = applier_of(tmp_path, store)
        await applier.recover()
        first = applier.generation
        await store.clear()
        task = asyncio.create_task(applier.run())
        while applier.generation == first or applier.generation is None:
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.wait([task])
        applier.close()
        assert applier.counts.rebuilds == 2
        await assert_holds_the_log(store, tmp_path)

    run(work())


def test_a_batch_is_never_committed_to_a_store_that_was_emptied_meanwhile(tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(2).take(400))

    class Restarting(ShakyStore):
        commits = 0

        async def commit(self, commit: Commit) -> None:
            self.commits += 1
            if self.commits == 6:
                await self.clear()
                raise StoreUnavailable("connection lost")
            await super().commit(commit)

    async def work() -> None:
        store = Restarting()
        applier = applier_of(tmp_path, store, durable=lambda: 0)
        await applier.recover()
        applier._written = lambda: 400
        await running(applier, 400)
        assert applier.counts.rebuilds == 2
        await assert_holds_the_log(store, tmp_path)

    run(work())


def test_a_store_that_goes_back_in_time_is_taken_over_from_there(tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(3).take(400))

    async def work() -> None:
        store = MemoryStore()
        applier = applier_of(tmp_path, store, durable=lambda: 200)
        await applier.recover()
        backup = dict(store._rows), dict(store._cells), store._applied
        applier._written = lambda: 300
        await running(applier, 300)
        store._rows, store._cells, store._applied = backup
        again = applier_of(tmp_path, store)
        await again.recover()
        again.close()
        assert (again.counts.rebuilds, again.counts.take_overs) == (0, 1)
        await assert_holds_the_log(store, tmp_path)

    run(work())


class RewindingStore(MemoryStore):
    """A server that dies with a commit on its way, and is back with an older snapshot before it arrives."""

    def __init__(self, snapshot_at: int, rewind_at: int) -> None:
        super().__init__()
        self._snapshot_at, self._rewind_at = snapshot_at, rewind_at
        self._commits = 0
        self._snapshot: tuple[dict[str, tuple[bytes, float]], dict[tuple[str, str], bytes], int | None]

    async def commit(self, commit: Commit) -> None:
        self._commits += 1
        if self._commits == self._rewind_at:
            self._rows, self._cells, self._applied = self._snapshot
        await super().commit(commit)
        if self._commits == self._snapshot_at:
            self._snapshot = dict(self._rows), dict(self._cells), self._applied


@pytest.mark.parametrize("snapshot_at", [6, 8])
def test_a_batch_is_never_committed_to_a_store_that_went_back_meanwhile(snapshot_at: int, tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(13).take(400))

    async def work() -> None:
        store = RewindingStore(snapshot_at, 10)
        applier = applier_of(tmp_path, store, durable=lambda: 0)
        await applier.recover()
        applier._written = lambda: 400
        await running(applier, 400)
        assert (applier.counts.rebuilds, applier.counts.take_overs) == (1, 1)
        await assert_holds_the_log(store, tmp_path)

    run(work())


@pytest.mark.parametrize("snapshot_at", [1, 2, 5])
def test_a_filling_that_goes_back_to_a_part_of_itself_is_not_taken_for_whole(
    snapshot_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path, EventStream(14).take(300))
    monkeypatch.setattr(rebuilding, "CHUNK_ROWS", 20)

    async def work() -> None:
        store = RewindingStore(snapshot_at, 8)
        with pytest.raises(StoreUnavailable):
            await rebuild(tmp_path, store, "broken")
        applier = applier_of(tmp_path, store)
        await applier.recover()
        applier.close()
        assert applier.counts.rebuilds == 1
        await assert_holds_the_log(store, tmp_path)

    run(work())


@pytest.mark.parametrize("where", ["before", "after"])
def test_commits_that_fail_a_few_times_lose_nothing(where: str, tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(4).take(300))

    async def work() -> None:
        store = ShakyStore()
        applier = applier_of(tmp_path, store, durable=lambda: 0)
        await applier.recover()
        errors: list[StoreError] = [StoreTimeout("slow"), StoreUnavailable("down"), StoreTimeout("slow")]
        setattr(store, f"fail_{where}", errors)
        applier._written = lambda: 300
        await running(applier, 300)
        assert applier.counts.retries >= (3 if where == "before" else 1)
        assert applier.counts.rebuilds == 1
        await assert_holds_the_log(store, tmp_path)

    run(work())


def test_reads_that_fail_a_few_times_lose_nothing(tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(5).take(200))

    async def work() -> None:
        store = ShakyStore()
        applier = applier_of(tmp_path, store, durable=lambda: 0)
        await applier.recover()
        store.fail_reads = [StoreTimeout("slow"), StoreUnavailable("down")]
        applier._written = lambda: 200
        await running(applier, 200)
        assert applier.counts.rebuilds == 1
        await assert_holds_the_log(store, tmp_path)

    run(work())


def test_a_store_of_another_log_is_filled_anew(tmp_path: Path) -> None:
    write_log(tmp_path / "one", EventStream(6).take(200))
    write_log(tmp_path / "other", [event_with_other_id(event) for event in EventStream(7).take(300)])

    async def work() -> None:
        store = MemoryStore()
        for name in ("one", "other"):
            applier = applier_of(tmp_path / name, store)
            await applier.recover()
            applier.close()
            assert applier.counts.rebuilds == 1
        await assert_holds_the_log(store, tmp_path / "other")

    run(work())


def test_a_store_ahead_of_its_log_is_filled_anew(tmp_path: Path) -> None:
    events = EventStream(8).take(200)
    write_log(tmp_path / "whole", events)
    write_log(tmp_path / "cut", events[:150])

    async def work() -> None:
        store = MemoryStore()
        for name in ("whole", "cut"):
            applier = applier_of(tmp_path / name, store)
            await applier.recover()
            applier.close()
        assert applier.counts.rebuilds == 1
        await assert_holds_the_log(store, tmp_path / "cut")

    run(work())


def test_a_filling_that_broke_off_is_not_taken_for_a_full_store(tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(9).take(200))

    async def work() -> None:
        store = ShakyStore()
        store.fail_after = [StoreUnavailable("down")]
        with pytest.raises(StoreUnavailable):
            await rebuild(tmp_path, store, "broken")
        assert (await store.read([GENERATION])).rows == (None,)
        applier = applier_of(tmp_path, store)
        await applier.recover()
        applier.close()
        await assert_holds_the_log(store, tmp_path)

    run(work())


def test_an_event_that_breaks_the_state_does_not_stop_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = EventStream(10).take(60)
    write_log(tmp_path, events)
    apply = State.apply

    def poisoned(self: State, offset: int, event: Event, rowset: RowSet) -> bool:
        if offset == 20:
            raise ZeroDivisionError("poison")
        return apply(self, offset, event, rowset)

    async def work() -> None:
        store = MemoryStore()
        applier = applier_of(tmp_path, store, durable=lambda: 0)
        await applier.recover()
        monkeypatch.setattr(State, "apply", poisoned)
        applier._written = lambda: 60
        await running(applier, 60)
        assert applier.counts.crashes == 0

    run(work())


def test_a_row_that_cannot_be_read_makes_the_store_be_filled_anew(tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(11, users=1).take(300))

    async def work() -> None:
        store = MemoryStore()
        applier = applier_of(tmp_path, store, durable=lambda: 100)
        await applier.recover()
        await store.put(rows.user_key("u0"), b"\xc1garbage", 1000)
        applier._written = lambda: 300
        await running(applier, 300)
        assert applier.counts.rebuilds == 2
        await assert_holds_the_log(store, tmp_path)

    run(work())


def test_the_lag_is_the_age_of_the_oldest_durable_event_not_yet_applied(tmp_path: Path) -> None:
    events = EventStream(12).take(30)

    async def work() -> None:
        now_ms = [0.0]
        store = MemoryStore()
        with LogWriter.open(tmp_path) as writer:
            applier = Applier(tmp_path, lambda: writer.durable, store, monotonic_ms=lambda: now_ms[0], settings=QUICK)
            await applier.recover()
            assert applier.lag_ms() == 0.0
            for at_ms in (100.0, 400.0):
                now_ms[0] = at_ms
                writer.append([encode_event(event) for event in events])
                await writer.wait_durable(writer.end)
                applier.notify()
            now_ms[0] = 1000.0
            assert applier.lag_ms() == 900.0
            await running(applier, 60)
            assert applier.lag_ms() == 0.0

    run(work())


def event_with_other_id(event: Event) -> Event:
    return msgspec.structs.replace(event, id="other-" + event.id)


def test_half_a_write_that_is_cut_back_is_never_applied(tmp_path: Path) -> None:
    """The applier follows what is written; a write that runs out of disk may leave whole lines for a moment."""
    good, bad = (
        encode_event(UserEvent(id=id_, time=from_seconds(1e9), user=id_, fields={"age": 1})) for id_ in ("good", "evil")
    )
    full = [False]

    def write(fd: int, block: bytes) -> int:
        if full[0]:
            os.write(fd, block[: len(bad) + 5])  # a whole line and some of the next
            raise OSError(errno.ENOSPC, "full")
        return os.write(fd, block)

    def truncate(fd: int, size: int) -> None:
        if full[0]:
            raise OSError(errno.EIO, "broken for now")
        os.ftruncate(fd, size)

    async def work() -> None:
        with LogWriter.open(tmp_path, calls=FileCalls(write=write, truncate=truncate)) as writer:
            store = MemoryStore()
            applier = applier_of(tmp_path, store, lambda: writer.end)
            lines = [encode_event(event) for event in EventStream(3).take(20)]
            writer.append(lines[:19])
            await applier.recover()
            writer.append(lines[19:])
            full[0] = True
            with pytest.raises(LogUnavailable):
                writer.append([bad, bad])
            await applier.recover()
            assert applier.applied == 20, "by a reader that reads ahead"
            full[0] = False
            writer.append([good])
            await applier.recover()
            applier.close()
            assert (await store.read([rows.user_key("evil")])).rows == (None,)
            await assert_holds_the_log(store, tmp_path)

    run(work())
