"""The shard cache's contract: bounded, pinned, loaded once, verified before use, gone when retired."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from ranker.inference.shard_errors import (
    CacheClosed,
    InvalidShardKey,
    LoadFailed,
    ShardTooLarge,
    UnknownShard,
)
from ranker.inference.shard_key import State
from ranker.inference.shards import Busy, ShardCache, ShardKey
from tests.ranker.inference.shard_fakes import (
    Holder,
    ManualTime,
    ScriptedSource,
    at_rest,
    content_of,
    held,
    in_loop,
    key,
    read,
    run,
    turns,
)

A, B, C = key("a"), key("b"), key("c")


@in_loop
async def test_a_pin_gives_the_published_bytes_read_only(folder: Path | None) -> None:
    cache = ShardCache(capacity_bytes=100, source=ScriptedSource({A: 100}), folder=folder)
    async with cache.pin(A) as shard:
        assert bytes(shard.data) == content_of(A, 100)
        assert (shard.key, shard.nbytes, shard.data.readonly) == (A, 100, True)
        assert folder is None or (shard.path is not None and shard.path.read_bytes() == shard.data)
        assert cache.stats().pinned_bytes == 100
    at_rest(cache)
    await cache.aclose()


@in_loop
async def test_a_second_pin_is_a_hit_and_loads_nothing(folder: Path | None) -> None:
    source = ScriptedSource({A: 10})
    cache = ShardCache(capacity_bytes=100, source=source, folder=folder)
    assert await read(cache, A) == await read(cache, A)
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.loads, source.starts[A]) == (1, 1, 1, 1)
    await cache.aclose()


@in_loop
async def test_a_shard_of_no_bytes_is_a_shard(folder: Path | None) -> None:
    cache = ShardCache(capacity_bytes=0, source=ScriptedSource({A: 0}), folder=folder)
    assert await read(cache, A) == b""
    assert await read(cache, A) == b""
    at_rest(cache)
    await cache.aclose()
    assert folder is None or list(folder.iterdir()) == []


@in_loop
async def test_large_chunks_are_hashed_off_the_loop_and_give_the_same_bytes(folder: Path | None) -> None:
    size = 1 << 20
    cache = ShardCache(capacity_bytes=size, source=ScriptedSource({A: size}, pieces=3), folder=folder)
    assert await read(cache, A) == content_of(A, size)
    await cache.aclose()


@in_loop
async def test_sixty_four_callers_share_one_load() -> None:
    source = ScriptedSource({A: 10}, gated=True)
    cache = ShardCache(capacity_bytes=10, source=source)
    holders = [Holder(cache, A) for _ in range(64)]
    await turns()
    assert cache.stats().reserved_bytes == 10
    await source.feed_all(A)
    assert all(each.holding for each in holders) and source.starts[A] == 1
    for each in holders:
        await each.release()
    assert (cache.stats().loads, cache.stats().misses) == (1, 64)
    at_rest(cache)


@in_loop
async def test_states_go_from_loading_to_resident_to_leaving_to_nothing() -> None:
    source = ScriptedSource({A: 10}, gated=True)
    states: list[State | None] = []
    cache: ShardCache = ShardCache(
        capacity_bytes=10, source=source, check=lambda name, content: states.append(cache.state(name))
    )
    assert cache.state(A) is None
    holder = Holder(cache, A)
    await turns()
    states.append(cache.state(A))
    await source.feed_all(A)
    states.append(cache.state(A))
    cache.retire("m", "1")
    states.append(cache.state(A))
    await holder.release()
    # the check sees bytes that are not yet verified for use
    assert states == [State.LOADING, State.LOADING, State.RESIDENT, State.LEAVING]
    assert cache.state(A) is None


@in_loop
async def test_the_least_recently_used_shard_leaves_first() -> None:
    cache = ShardCache(capacity_bytes=20, source=ScriptedSource({A: 10, B: 10, C: 10}))
    for name in (A, B, A, C):  # A is used again, so C costs B its place
        await read(cache, name)
    assert [cache.state(name) for name in (A, B, C)] == [State.RESIDENT, None, State.RESIDENT]
    assert cache.stats().evictions == 1


@in_loop
async def test_a_pinned_shard_is_never_evicted_though_it_is_the_oldest() -> None:
    cache = ShardCache(capacity_bytes=20, source=ScriptedSource({A: 10, B: 10, C: 10}))
    async with cache.pin(A):
        await read(cache, B)
        await read(cache, C)
        assert [cache.state(name) for name in (A, B, C)] == [State.RESIDENT, None, State.RESIDENT]
    at_rest(cache)


@in_loop
async def test_when_all_is_pinned_a_load_is_refused_at_once_and_nothing_is_evicted() -> None:
    source = ScriptedSource({A: 10, B: 5, C: 10})
    cache = ShardCache(capacity_bytes=15, source=source)
    await read(cache, B)
    async with cache.pin(A):
        with pytest.raises(Busy, match="m@1/c: 10 bytes do not fit: of 15, 10 are pinned"):
            await read(cache, C)
        assert cache.state(B) is State.RESIDENT and source.starts[C] == 0
    assert await read(cache, C) == content_of(C, 10)
    assert cache.stats().refused == 1


@in_loop
async def test_a_load_in_flight_has_its_bytes_reserved() -> None:
    source = ScriptedSource({A: 10, B: 10}, gated=True)
    cache = ShardCache(capacity_bytes=15, source=source)
    holder = Holder(cache, A)
    await turns()
    with pytest.raises(Busy, match="10 being loaded"):
        await read(cache, B)
    await source.feed_all(A)
    await holder.release()
    at_rest(cache)


@in_loop
async def test_a_shard_larger_than_the_cache_is_refused_as_too_large() -> None:
    cache = ShardCache(capacity_bytes=9, source=ScriptedSource({A: 10}))
    with pytest.raises(ShardTooLarge, match="10 bytes never fit in 9"):
        await read(cache, A)
    at_rest(cache)


@in_loop
async def test_a_key_that_the_source_does_not_know_is_named_and_asked_for_anew_each_time() -> None:
    source = ScriptedSource({})
    cache = ShardCache(capacity_bytes=9, source=source)
    with pytest.raises(UnknownShard, match="m@1/a"):
        await read(cache, A)
    source.contents[A] = b"now here"
    assert await read(cache, A) == b"now here"


@in_loop
async def test_a_load_that_ended_leaves_no_task_behind() -> None:
    time, source = ManualTime(), ScriptedSource({A: 10, B: 10})
    source.script(B, [OSError("reset")])
    cache = ShardCache(capacity_bytes=20, source=source, clock=time.clock, sleep=time.sleep)
    await read(cache, A)
    with pytest.raises(LoadFailed):
        await read(cache, B)
    await turns()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_loop
async def test_closing_ends_loads_and_drops_shards_but_not_under_a_holder(folder: Path | None) -> None:
    source = ScriptedSource({A: 10, B: 10, C: 10})
    cache = ShardCache(capacity_bytes=30, source=source, folder=folder)
    holder = await held(cache, A)
    await read(cache, B)
    source.gated = True
    waiting = Holder(cache, C)
    await turns()
    await cache.aclose()
    assert isinstance(await waiting.error(), CacheClosed)
    with pytest.raises(CacheClosed):
        await read(cache, A)
    assert holder.holding
    await holder.release()
    at_rest(cache)
    assert cache.stats().resident_bytes == 0
    assert folder is None or list(folder.iterdir()) == []


@in_loop
async def test_stats_have_the_relied_on_names_as_attributes_and_as_a_mapping() -> None:
    time = ManualTime()
    source = ScriptedSource({A: 8, B: 6})
    source.on_chunk = lambda: setattr(time, "now_s", time.now_s + 0.25)
    cache = ShardCache(capacity_bytes=10, source=source, clock=time.clock, sleep=time.sleep)
    for name in (A, A, B):
        await read(cache, name)
    stats = cache.stats()
    expected = {
        "hits": 1,
        "misses": 2,
        "loads": 2,
        "failures": 0,
        "evictions": 1,
        "returned_within_60s": 0,
        "resident_bytes": 6,
        "pinned_bytes": 0,
        "load_ms": 1000.0,  # two loads of two chunks of 250 ms
        "load_bytes": 14,
    }
    assert {name: getattr(stats, name) for name in expected} == expected
    assert {name: dict(stats)[name] for name in expected} == expected
    with pytest.raises(KeyError):
        stats["hit_rates"]


@in_loop
async def test_an_eviction_that_comes_back_within_a_minute_is_counted_and_a_later_one_is_not() -> None:
    time = ManualTime()
    cache = ShardCache(capacity_bytes=10, source=ScriptedSource({A: 10, B: 10}), clock=time.clock, sleep=time.sleep)
    await read(cache, A)
    await read(cache, B)
    await time.advance(59)
    await read(cache, A)
    await time.advance(61)
    await read(cache, B)
    stats = cache.stats()
    assert (stats.loads, stats.evictions, stats.returned_within_60s) == (4, 3, 1)
    assert (stats.cold_loads, stats.cold_by_version) == (2, {"m@1": 2})


def test_a_cache_serves_one_event_loop_after_another() -> None:
    source = ScriptedSource({A: 10, B: 10}, gated=True)
    cache = ShardCache(capacity_bytes=10, source=source)

    async def stopped_in_the_midst() -> None:
        Holder(cache, A)
        await turns()

    run(stopped_in_the_midst())
    at_rest(cache)
    source.gated = False

    async def later() -> None:
        assert await read(cache, B) == content_of(B, 10)

    run(later())


@pytest.mark.parametrize("capacity", [-1, 1.5, True, None, "9"], ids=str)
def test_a_capacity_that_is_not_a_number_of_bytes_is_refused(capacity: object) -> None:
    with pytest.raises(ValueError, match="capacity_bytes"):
        ShardCache(capacity_bytes=capacity, source=ScriptedSource({}))  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["", ".", "..", "/etc/passwd", "a/../b", "a\\b", "a\0", "x" * 256, 7, None], ids=repr)
@pytest.mark.parametrize("place", ["model", "version", "shard"])
def test_a_key_cannot_be_a_path(place: str, part: object) -> None:
    with pytest.raises(InvalidShardKey, match=place):
        ShardKey(**{"model": "m", "version": "1", "shard": "0", place: part})  # type: ignore[arg-type]


def test_a_coroutine_that_returns_the_iterator_is_a_source_too() -> None:
    class Late(ScriptedSource):
        async def chunks(self, name: ShardKey):  # type: ignore[no-untyped-def, override]
            await asyncio.sleep(0)
            return super().chunks(name)

    run_checked = hashlib.sha256(content_of(A, 10)).hexdigest()

    async def test() -> None:
        cache = ShardCache(capacity_bytes=10, source=Late({A: 10}))  # type: ignore[arg-type]
        assert hashlib.sha256(await read(cache, A)).hexdigest() == run_checked

    run(test())
