"""Who waits for a shard may leave at any moment: the others get theirs, and no pin and no byte is left behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ranker.inference.shard_errors import (
    LoadTimedOut,
)
from ranker.inference.shards import Busy, LoadRules, ShardCache, ShardKey
from tests.ranker.inference.shard_fakes import (
    Holder,
    ManualTime,
    ScriptedSource,
    at_rest,
    cache_of,
    content_of,
    held,
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
async def test_the_first_callers_cancel_fails_nobody_and_starts_no_second_load() -> None:
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


@in_loop
async def test_a_load_whose_every_waiter_left_still_ends_as_a_resident_shard() -> None:
    source = ScriptedSource({A: 10}, gated=True)
    cache = ShardCache(capacity_bytes=10, source=source)
    waiters = [Holder(cache, A) for _ in range(3)]
    await turns()
    for each in waiters:
        await each.cancel()
    await source.feed_all(A)
    assert await read(cache, A) == RIGHT and source.starts[A] == 1
    at_rest(cache)


@in_loop
async def test_a_burst_of_callers_who_left_does_not_lock_out_healthy_traffic() -> None:
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


@in_loop
async def test_a_load_that_somebody_waits_for_is_not_ended_for_another() -> None:
    source = ScriptedSource({A: 10, B: 10}, gated=True)
    cache = ShardCache(capacity_bytes=10, source=source)
    wanted = Holder(cache, A)
    await turns()
    with pytest.raises(Busy):
        await read(cache, B)
    await source.feed_all(A)
    assert wanted.holding
    await wanted.release()


@in_loop
async def test_of_two_loads_the_one_that_nobody_waits_for_makes_room() -> None:
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


@in_loop
async def test_two_pins_that_wait_for_the_same_room_start_one_load() -> None:
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


@in_loop
async def test_an_abort_while_holding_leaves_no_pin() -> None:
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


@in_loop
async def test_bytes_stay_reserved_until_the_thread_that_has_the_memory_lets_go_of_it() -> None:
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


@in_loop
async def test_a_cancel_during_a_large_chunk_waits_for_the_thread_that_has_the_memory() -> None:
    size = 1 << 22
    source = ScriptedSource({A: size}, pieces=1)
    cache = ShardCache(capacity_bytes=size, source=source)
    holder = Holder(cache, A)
    await turns(5)
    await holder.cancel()
    await cache.aclose()
    at_rest(cache)


@in_loop
async def test_memory_that_a_holder_keeps_past_his_pin_is_counted_and_stays_readable() -> None:
    cache = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10, B: 10}))
    async with cache.pin(A) as shard:
        kept = shard.data[2:4]
    await read(cache, B)
    assert cache.stats().held_past_pin == 1 and bytes(kept) == RIGHT[2:4]
