"""Faults that other caches had, each by its name; after each the cache is at rest and the next load is clean."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import threading
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from ranker.inference.shard_errors import (
    ChecksumKind,
    FormatRefused,
    LoadFailed,
    LoadTimedOut,
    ManifestRefused,
    ShardError,
    SizeMismatch,
)
from ranker.inference.shards import Busy, ChecksumMismatch, LoadRules, ShardCache, ShardKey
from tests.ranker.inference.shard_fakes import (
    Holder,
    ManualTime,
    ScriptedSource,
    at_rest,
    content_of,
    held,
    key,
    read,
    run,
    turns,
)

A, B, C = key("a"), key("b"), key("c")
RIGHT = content_of(A, 10)
FLIPPED = bytes([RIGHT[0] ^ 1]) + RIGHT[1:]


def cache_of(source: Any, time: ManualTime, capacity_bytes: int = 10, **fields: Any) -> ShardCache:
    return ShardCache(capacity_bytes=capacity_bytes, source=source, clock=time.clock, sleep=time.sleep, **fields)


def test_the_first_callers_cancel_fails_nobody_and_starts_no_second_load() -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10}, gated=True)
        cache = ShardCache(capacity_bytes=10, source=source)
        first = Holder(cache, A)
        await turns()
        others = [Holder(cache, A) for _ in range(3)]
        await turns()
        await first.cancel()
        late = Holder(cache, A)
        await source.feed_all(A)
        assert first.task.cancelled() and first.content is None
        assert all(each.holding for each in [*others, late]) and source.starts[A] == 1
        for each in [*others, late]:
            await each.release()
        at_rest(cache)

    run(test())


def test_a_load_whose_every_waiter_left_still_ends_as_a_resident_shard() -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10}, gated=True)
        cache = ShardCache(capacity_bytes=10, source=source)
        waiters = [Holder(cache, A) for _ in range(3)]
        await turns()
        for each in waiters:
            await each.cancel()
        await source.feed_all(A)
        assert await read(cache, A) == RIGHT and source.starts[A] == 1
        at_rest(cache)

    run(test())


def test_a_burst_of_callers_who_left_does_not_lock_out_healthy_traffic() -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10, B: 10}, gated=True)
        cache = ShardCache(capacity_bytes=10, source=source)
        stray = Holder(cache, A)
        await turns()
        await stray.cancel()
        healthy = Holder(cache, B)
        await source.feed_all(B)
        assert healthy.holding and source.running[A] == 0
        await healthy.release()
        assert cache.stats().failures == 0
        at_rest(cache)

    run(test())


def test_a_load_that_somebody_waits_for_is_not_ended_for_another() -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10, B: 10}, gated=True)
        cache = ShardCache(capacity_bytes=10, source=source)
        wanted = Holder(cache, A)
        await turns()
        with pytest.raises(Busy):
            await read(cache, B)
        await source.feed_all(A)
        assert wanted.holding
        await wanted.release()

    run(test())


def test_of_two_loads_the_one_that_nobody_waits_for_makes_room() -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10, B: 10, C: 10}, gated=True)
        cache = ShardCache(capacity_bytes=20, source=source)
        wanted, stray = Holder(cache, A), Holder(cache, B)
        await turns()
        await stray.cancel()
        healthy = Holder(cache, C)
        await source.feed_all(C)
        await source.feed_all(A)
        assert healthy.holding and wanted.holding
        for each in (healthy, wanted):
            await each.release()
        at_rest(cache)

    run(test())


def test_two_pins_that_wait_for_the_same_room_start_one_load() -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10, B: 10}, gated=True)
        cache = ShardCache(capacity_bytes=10, source=source)
        stray = Holder(cache, A)
        await turns()
        await stray.cancel()
        pair = [Holder(cache, B), Holder(cache, B)]
        await source.feed_all(B)
        assert all(each.holding for each in pair) and source.starts[B] == 1
        for each in pair:
            await each.release()
        at_rest(cache)

    run(test())


def test_a_failure_at_the_first_step_is_not_cached_for_ever() -> None:
    async def test() -> None:
        time, source = ManualTime(), ScriptedSource({A: 10})
        source.script(A, [OSError("gone")])
        cache = cache_of(source, time)
        with pytest.raises(LoadFailed, match="m@1/a: OSError: gone"):
            await read(cache, A)
        await time.advance(0.2)
        assert await read(cache, A) == RIGHT
        assert (cache.stats().failures, cache.stats().loads) == (1, 1)
        at_rest(cache)

    run(test())


def test_all_waiters_of_a_failed_load_get_its_error_each_his_own() -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10}, gated=True)
        source.script(A, [RIGHT[:5], OSError("reset")])
        cache = ShardCache(capacity_bytes=10, source=source)
        waiters = [Holder(cache, A) for _ in range(5)]
        await source.feed_all(A)
        errors = [await each.error() for each in waiters]
        assert [type(error) for error in errors] == [LoadFailed] * 5 and len(set(map(id, errors))) == 5
        assert all(isinstance(error.__cause__, OSError) for error in errors if error)
        assert cache.stats().failures == 1
        at_rest(cache)

    run(test())


def test_within_its_back_off_a_failed_load_is_refused_with_the_same_error_and_not_tried() -> None:
    async def test() -> None:
        time, source = ManualTime(), ScriptedSource({A: 10})
        source.script(A, *[[OSError("down")]] * 20)
        cache = cache_of(source, time, rules=LoadRules(first_backoff_s=1, longest_backoff_s=4))
        for pause in (1, 2, 4, 4, 4):  # doubling, capped
            with pytest.raises(LoadFailed, match="down"):
                await read(cache, A)
            tried = source.starts[A]
            await time.advance(pause - 0.1)
            with pytest.raises(LoadFailed, match=r"OSError: down \(failed \d times in a row, tried again in 0.1 s\)"):
                await read(cache, A)
            assert source.starts[A] == tried
            await time.advance(0.1)
        assert source.starts[A] == 5

    run(test())


@pytest.fixture(params=["memory", "folder"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "cache" if request.param == "folder" else None


@pytest.mark.parametrize(
    ("chunks", "error"),
    [
        ([FLIPPED], ChecksumMismatch),
        ([RIGHT[:9]], SizeMismatch),
        ([], SizeMismatch),
        ([b"", b""], SizeMismatch),
        ([RIGHT, b"x"], SizeMismatch),
        ([RIGHT * 1000], SizeMismatch),
        ([RIGHT[:3], OSError("reset")], LoadFailed),
        ([asyncio.CancelledError()], LoadFailed),
        (["text"], LoadFailed),
        ([None], LoadFailed),
        ([MemoryError()], LoadFailed),
    ],
    ids=["flipped", "short", "none", "empty", "long", "much-longer", "reset", "cancelled", "text", "null", "memory"],
)
def test_a_bad_stream_leaves_nothing_behind_and_the_retry_is_clean(
    chunks: Iterable[Any], error: type[Exception], folder: Path | None
) -> None:
    async def test() -> None:
        time, source = ManualTime(), ScriptedSource({A: 10})
        source.script(A, chunks)
        cache = cache_of(source, time, folder=folder)
        with pytest.raises(error, match="m@1/a"):
            await read(cache, A)
        at_rest(cache)
        assert cache.stats().resident_bytes == 0 and source.running[A] == 0
        assert folder is None or list(folder.iterdir()) == []
        await time.advance(1)
        assert await read(cache, A) == RIGHT
        await cache.aclose()

    run(test())


def test_empty_chunks_between_others_are_no_fault() -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10})
        source.script(A, [b"", RIGHT[:5], *[b""] * 500, RIGHT[5:], b""])
        assert await read(ShardCache(capacity_bytes=10, source=source), A) == RIGHT

    run(test())


def test_a_source_that_yields_nothing_for_ever_is_given_up_without_blocking_the_loop() -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10})
        source.script(A, iter(lambda: b"", None))
        cache = ShardCache(capacity_bytes=10, source=source)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        with pytest.raises(LoadFailed, match="empty chunks in a row"):
            await read(cache, A)
        ticking.cancel()
        assert ticks > 500
        at_rest(cache)

    run(test())


def test_corrupt_bytes_are_read_a_few_times_and_then_quarantined_until_told_or_later() -> None:
    async def test() -> None:
        time, source = ManualTime(), ScriptedSource({A: 10})
        source.script(A, *[[FLIPPED]] * 4)
        cache = cache_of(source, time, rules=LoadRules(corrupt_attempts=3, quarantine_s=600))
        for _ in range(20):
            with pytest.raises(ChecksumMismatch):
                await read(cache, A)
            await time.advance(29)
        assert source.starts[A] == 3 and cache.quarantined() == (A,)
        await time.advance(600)
        assert cache.quarantined() == ()
        with pytest.raises(ChecksumMismatch):
            await read(cache, A)
        assert source.starts[A] == 4 and cache.quarantined() == (A,)
        cache.readmit("m", "1")
        assert await read(cache, A) == RIGHT and cache.quarantined() == ()

    run(test())


def test_a_load_that_hangs_is_ended_after_its_time_and_all_waiters_are_told() -> None:
    async def test() -> None:
        time, source = ManualTime(), ScriptedSource({A: 10}, gated=True)
        cache = cache_of(source, time, rules=LoadRules(timeout_s=5))
        waiters = [Holder(cache, A), Holder(cache, A)]
        await turns()
        await time.advance(4.9)
        assert not any(each.task.done() for each in waiters)
        await time.advance(0.1)
        assert [type(await each.error()) for each in waiters] == [LoadTimedOut, LoadTimedOut]
        assert source.running[A] == 0 and cache.stats().failures == 1
        at_rest(cache)
        await time.advance(1)
        source.gated = False
        assert await read(cache, A) == RIGHT

    run(test())


def test_a_source_that_will_not_even_be_cancelled_keeps_its_bytes_reserved_but_nobody_waiting(
    folder: Path | None,
) -> None:
    async def test() -> None:
        time, freed = ManualTime(), asyncio.Event()

        class Stubborn(ScriptedSource):
            async def chunks(self, name: ShardKey) -> AsyncIterator[bytes]:
                while not freed.is_set():
                    try:
                        await freed.wait()
                    except asyncio.CancelledError:
                        continue
                yield self.contents[name]

        cache = cache_of(Stubborn({A: 10, B: 10}), time, rules=LoadRules(timeout_s=5), folder=folder)
        waiter = Holder(cache, A)
        await turns()
        await time.advance(5)
        assert isinstance(await waiter.error(), LoadTimedOut)
        assert cache.stats().reserved_bytes == 10  # memory that is really still taken
        with pytest.raises(LoadTimedOut):
            await read(cache, A)
        with pytest.raises(Busy):
            await read(cache, B)
        freed.set()
        await turns()
        at_rest(cache)
        assert cache.stats().resident_bytes == 0 and cache.stats().failures == 1
        assert folder is None or list(folder.iterdir()) == []

    run(test())


@pytest.mark.parametrize("field", ["timeout_s", "first_backoff_s", "longest_backoff_s", "quarantine_s"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_of_zero_is_refused_not_read_as_for_ever(field: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=field):
        LoadRules(**{field: seconds})  # type: ignore[arg-type]


def test_without_a_time_out_a_load_may_take_as_long_as_it_does() -> None:
    async def test() -> None:
        time, source = ManualTime(), ScriptedSource({A: 10}, gated=True)
        cache = cache_of(source, time, rules=LoadRules(timeout_s=None))
        holder = Holder(cache, A)
        await turns()
        await time.advance(1e6)
        await source.feed_all(A)
        assert holder.holding
        await holder.release()

    run(test())


@pytest.mark.parametrize("size", [-1, 10.0, "10", None, True], ids=repr)
def test_a_size_that_is_no_number_of_bytes_is_refused(size: object) -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10})
        source.sizes[A] = size
        cache = ShardCache(capacity_bytes=100, source=source)
        with pytest.raises(ManifestRefused, match="m@1/a: size"):
            await read(cache, A)
        assert source.starts[A] == 0
        at_rest(cache)

    run(test())


@pytest.mark.parametrize(
    "checksum",
    ["", "deadbeef", hashlib.md5(RIGHT).hexdigest(), "sha256:" + "0" * 64, "g" * 64, b"0" * 64, None],
    ids=lambda value: repr(value)[:12],
)
def test_a_checksum_of_the_wrong_kind_is_refused_before_anything_is_read(checksum: object) -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10})
        source.checksums[A] = checksum
        cache = ShardCache(capacity_bytes=100, source=source)
        with pytest.raises(ChecksumKind, match="m@1/a: sha256"):
            await read(cache, A)
        assert source.starts[A] == 0
        at_rest(cache)

    run(test())


def test_a_checksum_in_capitals_is_the_same_checksum() -> None:
    async def test() -> None:
        source = ScriptedSource({A: 10})
        source.checksums[A] = hashlib.sha256(RIGHT).hexdigest().upper()
        assert await read(ShardCache(capacity_bytes=10, source=source), A) == RIGHT

    run(test())


def test_a_manifest_that_cannot_be_read_backs_off_as_a_load_does() -> None:
    async def test() -> None:
        class Broken(ScriptedSource):
            asked = 0

            def size(self, name: ShardKey) -> int:
                self.asked += 1
                raise OSError("stale handle")

        source = Broken({A: 10})
        cache = cache_of(source, ManualTime())
        for _ in range(3):
            with pytest.raises(LoadFailed, match="stale handle"):
                await read(cache, A)
        assert source.asked == 1
        at_rest(cache)

    run(test())


def test_a_sources_own_error_with_other_arguments_still_reaches_every_waiter() -> None:
    class Odd(ShardError):
        def __init__(self, code: int, text: str) -> None:
            super().__init__(f"{code} {text}")

    async def test() -> None:
        source = ScriptedSource({A: 10})
        source.script(A, [Odd(503, "try later")])
        with pytest.raises(LoadFailed, match="503 try later"):
            await read(ShardCache(capacity_bytes=10, source=source), A)

    run(test())


def test_an_abort_while_holding_leaves_no_pin() -> None:
    async def test() -> None:
        cache = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10, B: 10}))
        holder = await held(cache, A)
        await holder.cancel()
        at_rest(cache)

        async def failing() -> None:
            async with cache.pin(A):
                raise RuntimeError("the batch failed")

        with pytest.raises(RuntimeError):
            await failing()
        at_rest(cache)
        assert await read(cache, B) == content_of(B, 10)  # nothing left behind blocks an eviction

    run(test())


@pytest.mark.parametrize("outcome", ["loads", "fails", "retired"])
def test_a_cancel_at_any_turn_of_a_load_leaks_no_pin_and_no_byte(outcome: str) -> None:
    async def cancelled_after(count: int) -> bool:
        source = ScriptedSource({A: 10, B: 10}, pieces=3)
        if outcome == "fails":
            source.script(A, [RIGHT[:5], OSError("reset")])
        cache = ShardCache(capacity_bytes=10, source=source)
        await read(cache, B)  # so that there is an eviction on the way
        first, second = Holder(cache, A), Holder(cache, A)
        await turns(count)
        first.task.cancel()
        if outcome == "retired":
            cache.retire("m", "1")
        cache.check_integrity()
        await turns()
        assert first.task.done() and source.running[A] == 0
        if outcome == "loads":
            assert second.holding and source.starts[A] == 1
        settled = first.content is not None
        await second.cancel()
        at_rest(cache)
        return settled

    async def test() -> None:
        reached = [await cancelled_after(count) for count in range(25)]
        assert outcome != "loads" or (not reached[0] and reached[-1])  # the range covers the whole load

    run(test())


def test_bytes_stay_reserved_until_the_thread_that_has_the_memory_lets_go_of_it() -> None:
    async def test() -> None:
        size, inside, leave = 1 << 17, threading.Event(), threading.Event()

        def slow_check(name: ShardKey, content: memoryview) -> None:
            inside.set()
            assert leave.wait(10)

        time = ManualTime()
        source = ScriptedSource({A: size})
        cache = cache_of(source, time, size, check=slow_check, rules=LoadRules(timeout_s=5))
        waiter = Holder(cache, A)
        assert await asyncio.to_thread(inside.wait, 10)
        await time.advance(5)
        assert isinstance(await waiter.error(), LoadTimedOut)
        assert cache.stats().reserved_bytes == size
        leave.set()
        await asyncio.to_thread(lambda: None)
        while cache.stats().reserved_bytes:
            await asyncio.sleep(0.001)
        at_rest(cache)

    run(test())


def test_a_success_ends_a_row_of_failures() -> None:
    async def test() -> None:
        time, source = ManualTime(), ScriptedSource({A: 10, B: 10})
        down = [OSError("down")]
        source.script(A, down, down, [RIGHT], down)
        cache = cache_of(source, time, rules=LoadRules(first_backoff_s=1))
        for pause in (1, 2):
            with pytest.raises(LoadFailed):
                await read(cache, A)
            await time.advance(pause)
        assert await read(cache, A) == RIGHT
        await read(cache, B)
        with pytest.raises(LoadFailed):
            await read(cache, A)
        await time.advance(1)  # the first back-off again, not the third
        assert await read(cache, A) == RIGHT

    run(test())


def test_a_cancel_during_a_large_chunk_waits_for_the_thread_that_has_the_memory() -> None:
    async def test() -> None:
        size = 1 << 22
        source = ScriptedSource({A: size}, pieces=1)
        cache = ShardCache(capacity_bytes=size, source=source)
        holder = Holder(cache, A)
        await turns(5)
        await holder.cancel()
        await cache.aclose()
        at_rest(cache)

    run(test())


def test_memory_that_a_holder_keeps_past_his_pin_is_counted_and_stays_readable() -> None:
    async def test() -> None:
        cache = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10, B: 10}))
        async with cache.pin(A) as shard:
            kept = shard.data[2:4]
        await read(cache, B)
        assert cache.stats().held_past_pin == 1 and bytes(kept) == RIGHT[2:4]

    run(test())


def test_a_format_that_the_check_refuses_is_never_resident() -> None:
    async def test() -> None:
        def refuse(name: ShardKey, content: memoryview) -> None:
            raise FormatRefused(f"{name}: is a pickle")

        cache = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10}), check=refuse)
        with pytest.raises(FormatRefused, match="pickle"):
            await read(cache, A)
        at_rest(cache)
        assert cache.stats().resident_bytes == 0

    run(test())


def test_a_partial_file_of_a_killed_run_is_deleted_not_resumed(tmp_path: Path) -> None:
    async def test() -> None:
        first = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10}), folder=tmp_path)
        async with first.pin(A) as shard:
            assert shard.path is not None
            name = shard.path
        await first.aclose()
        name.with_suffix(".partial").write_bytes(b"half a sha")
        name.write_bytes(b"left behind")
        (tmp_path / "README").write_text("not ours")
        cache = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10, B: 10}), folder=tmp_path)
        assert await read(cache, A) == RIGHT
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["README", name.name])
        await read(cache, B)
        name.with_suffix(".partial").write_bytes(b"half a sha")
        assert await read(cache, A) == RIGHT
        await cache.aclose()

    run(test())


def test_what_is_used_is_what_was_hashed_even_if_the_file_is_replaced(tmp_path: Path) -> None:
    async def test() -> None:
        cache = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10}), folder=tmp_path)
        async with cache.pin(A) as shard:
            assert shard.path is not None
            other = tmp_path / "other"
            other.write_bytes(FLIPPED)
            other.replace(shard.path)
        assert await read(cache, A) == RIGHT
        await cache.aclose()

    run(test())


def test_a_folder_that_vanishes_fails_the_load_and_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        time, folder = ManualTime(), tmp_path / "cache"
        cache = cache_of(ScriptedSource({A: 10, B: 10}), time, 20, folder=folder)
        holder = await held(cache, A)
        folder.rename(tmp_path / "moved")
        with pytest.raises(LoadFailed, match="m@1/b: FileNotFoundError"):
            await read(cache, B)
        assert holder.holding
        await holder.release()
        folder.mkdir()
        await time.advance(1)
        assert await read(cache, B) == content_of(B, 10)
        await cache.aclose()
        at_rest(cache)

    run(test())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_fails_the_load_and_leaves_no_byte_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_open = Path.open

    def on_full_disk(path: Path, mode: str = "r", **fields: Any) -> Any:
        return plain_open(Path("/dev/full"), "wb") if path.suffix == ".partial" else plain_open(path, mode, **fields)

    async def test() -> None:
        size = 1 << 17
        cache = ShardCache(capacity_bytes=size, source=ScriptedSource({A: size}), folder=tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "open", on_full_disk)
            with pytest.raises(LoadFailed, match="No space left"):
                await read(cache, A)
        at_rest(cache)

    run(test())


def test_no_failed_load_is_ever_reported_as_unseen() -> None:
    """asyncio complains through the loop's handler when a task's or future's error was never looked at."""
    complaints: list[dict[str, Any]] = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        source = ScriptedSource({A: 10}, gated=True)
        source.script(A, [OSError("reset")])
        cache = ShardCache(capacity_bytes=10, source=source)
        waiter = Holder(cache, A)
        await turns()
        source.feed(A)
        for _ in range(3):
            await turns(1)
        waiter.task.cancel()
        await asyncio.wait({waiter.task})
        await turns()
        del waiter, cache
        gc.collect()

    run(test())
    assert complaints == []
