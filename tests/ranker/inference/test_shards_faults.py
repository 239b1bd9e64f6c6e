"""Faults that other caches had, each by its name; after each the cache is at rest and the next load is clean."""

from __future__ import annotations

import asyncio
import gc
import hashlib
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
    cache_of,
    content_of,
    in_loop,
    key,
    read,
    run,
    turns,
)

A, B, C = key("a"), key("b"), key("c")
RIGHT = content_of(A, 10)
FLIPPED = bytes([RIGHT[0] ^ 1]) + RIGHT[1:]


@in_loop
async def test_a_failure_at_the_first_step_is_not_cached_for_ever() -> None:
    time, source = ManualTime(), ScriptedSource({A: 10})
    source.script(A, [OSError("gone")])
    cache = cache_of(source, time)
    with pytest.raises(LoadFailed, match="m@1/a: OSError: gone"):
        await read(cache, A)
    await time.advance(0.2)
    assert await read(cache, A) == RIGHT
    assert (cache.stats().failures, cache.stats().loads) == (1, 1)
    at_rest(cache)


@in_loop
async def test_all_waiters_of_a_failed_load_get_its_error_each_his_own() -> None:
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


@in_loop
async def test_within_its_back_off_a_failed_load_is_refused_with_the_same_error_and_not_tried() -> None:
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
@in_loop
async def test_a_bad_stream_leaves_nothing_behind_and_the_retry_is_clean(
    chunks: Iterable[Any], error: type[Exception], folder: Path | None
) -> None:
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


@in_loop
async def test_empty_chunks_between_others_are_no_fault() -> None:
    source = ScriptedSource({A: 10})
    source.script(A, [b"", RIGHT[:5], *[b""] * 500, RIGHT[5:], b""])
    assert await read(ShardCache(capacity_bytes=10, source=source), A) == RIGHT


@in_loop
async def test_a_source_that_yields_nothing_for_ever_is_given_up_without_blocking_the_loop() -> None:
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


@in_loop
async def test_corrupt_bytes_are_read_a_few_times_and_then_quarantined_until_told_or_later() -> None:
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


@in_loop
async def test_a_load_that_hangs_is_ended_after_its_time_and_all_waiters_are_told() -> None:
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


@in_loop
async def test_a_source_that_will_not_even_be_cancelled_keeps_its_bytes_reserved_but_nobody_waiting(
    folder: Path | None,
) -> None:
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


@pytest.mark.parametrize("field", ["timeout_s", "first_backoff_s", "longest_backoff_s", "quarantine_s"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_of_zero_is_refused_not_read_as_for_ever(field: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=field):
        LoadRules(**{field: seconds})  # type: ignore[arg-type]


@in_loop
async def test_without_a_time_out_a_load_may_take_as_long_as_it_does() -> None:
    time, source = ManualTime(), ScriptedSource({A: 10}, gated=True)
    cache = cache_of(source, time, rules=LoadRules(timeout_s=None))
    holder = Holder(cache, A)
    await turns()
    await time.advance(1e6)
    await source.feed_all(A)
    assert holder.holding
    await holder.release()


@pytest.mark.parametrize("size", [-1, 10.0, "10", None, True], ids=repr)
@in_loop
async def test_a_size_that_is_no_number_of_bytes_is_refused(size: object) -> None:
    source = ScriptedSource({A: 10})
    source.sizes[A] = size
    cache = ShardCache(capacity_bytes=100, source=source)
    with pytest.raises(ManifestRefused, match="m@1/a: size"):
        await read(cache, A)
    assert source.starts[A] == 0
    at_rest(cache)


@pytest.mark.parametrize(
    "checksum",
    ["", "deadbeef", hashlib.md5(RIGHT).hexdigest(), "sha256:" + "0" * 64, "g" * 64, b"0" * 64, None],
    ids=lambda value: repr(value)[:12],
)
@in_loop
async def test_a_checksum_of_the_wrong_kind_is_refused_before_anything_is_read(checksum: object) -> None:
    source = ScriptedSource({A: 10})
    source.checksums[A] = checksum
    cache = ShardCache(capacity_bytes=100, source=source)
    with pytest.raises(ChecksumKind, match="m@1/a: sha256"):
        await read(cache, A)
    assert source.starts[A] == 0
    at_rest(cache)


@in_loop
async def test_a_checksum_in_capitals_is_the_same_checksum() -> None:
    source = ScriptedSource({A: 10})
    source.checksums[A] = hashlib.sha256(RIGHT).hexdigest().upper()
    assert await read(ShardCache(capacity_bytes=10, source=source), A) == RIGHT


@in_loop
async def test_a_manifest_that_cannot_be_read_backs_off_as_a_load_does() -> None:
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


@in_loop
async def test_a_success_ends_a_row_of_failures() -> None:
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


@in_loop
async def test_a_format_that_the_check_refuses_is_never_resident() -> None:
    def refuse(name: ShardKey, content: memoryview) -> None:
        raise FormatRefused(f"{name}: is a pickle")

    cache = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10}), check=refuse)
    with pytest.raises(FormatRefused, match="pickle"):
        await read(cache, A)
    at_rest(cache)
    assert cache.stats().resident_bytes == 0


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
