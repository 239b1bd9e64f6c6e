"""Versions and threads: one loads while another serves, and none lets go of its shards too early."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from ranker.inference.alarm import Alarm
from ranker.inference.engine import DeviceStuck, EngineConfig, ModelFailed, Rejected, VersionRefused, open_engine
from ranker.inference.pool import MemoryPool
from ranker.inference.scheduler import SchedulerConfig
from ranker.inference.shards import Busy, ChecksumMismatch, ShardCache
from tests.ranker.inference.engine_fakes import Echo, ManualTime, run, staged, turns
from tests.ranker.inference.loops import in_loop
from tests.ranker.inference.shard_fakes import ScriptedSource, at_rest, key


def cache_of(capacity: int, **fields: Any) -> tuple[ShardCache, ScriptedSource]:
    source = ScriptedSource({key("a", "1"): 60, key("b", "1"): 20, key("a", "2"): 60}, **fields)
    return ShardCache(capacity_bytes=capacity, source=source), source


def one() -> Echo:
    return Echo(shards=(key("a", "1"), key("b", "1")))


def two() -> Echo:
    return Echo(shards=(key("a", "2"),))


async def until(holds: Any, seconds: float = 10.0) -> None:
    """Waits for another thread."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "never came true"
        await asyncio.sleep(0.001)


@in_loop
async def test_a_version_loads_from_verified_shards_and_keeps_them_pinned() -> None:
    cache, source = cache_of(100)
    stage = await staged(one(), cache=cache)
    assert stage.model.loaded == {"a": source.contents[key("a", "1")], "b": source.contents[key("b", "1")]}
    assert cache.stats().pinned_bytes == 80
    await stage.engine.close()
    at_rest(cache)


@in_loop
async def test_the_old_version_serves_while_the_new_one_loads_and_no_request_is_lost() -> None:
    cache, source = cache_of(140)
    stage = await staged(one(), cache=cache)
    source.gated = True
    new = two()
    loading = asyncio.create_task(stage.engine.load("m@2", new, cost_ms=(10.0, 0.0)))
    await turns()
    during = stage.offer(1)
    with pytest.raises(Rejected, match="loading"):
        await stage.engine.submit(stage.request(1, model="m@2"), 1)
    await turns()
    await stage.finish()
    assert during.result() == 2 and not loading.done()
    await source.feed_all(key("a", "2"))
    await loading
    old, fresh = stage.offer(2, 1000.0), stage.offer(3, 1000.0, model="m@2")
    retiring = asyncio.create_task(stage.engine.retire("m@1"))
    await turns()
    with pytest.raises(Rejected, match="retired"):
        await stage.engine.submit(stage.request(4), 4)
    assert not retiring.done() and stage.model.loaded is not None
    await stage.run_all()
    await retiring
    assert (old.result(), fresh.result()) == (4, 6) and new.ran == [[3]]
    assert stage.model.loaded is None and cache.stats().pinned_bytes == 60
    assert cache.stats().resident_bytes == 60  # the old version left
    stage.at_rest()


@in_loop
async def test_shards_stay_pinned_until_the_running_batch_ends_though_nobody_waits_for_it() -> None:
    cache, _ = cache_of(100)
    stage = await staged(one(), limits=EngineConfig(stuck_after_ms=100.0), cache=cache)
    future = stage.offer(1, 10_000.0)
    await turns()
    retiring = asyncio.create_task(stage.engine.retire("m@1"))
    await stage.time.advance(150.0)
    assert isinstance(future.exception(), DeviceStuck) and stage.engine.open_requests == 0
    assert not retiring.done() and cache.stats().pinned_bytes == 80
    await stage.device.finish()
    await retiring
    assert cache.stats().pinned_bytes == 0


@in_loop
async def test_a_version_without_room_is_refused_and_the_old_one_serves_on() -> None:
    cache, _ = cache_of(100)
    stage = await staged(one(), cache=cache)
    with pytest.raises(Busy):
        await stage.engine.load("m@2", two())
    assert stage.engine.metrics()["versions"] == {"m@1": "serving"}
    future = stage.offer(1)
    await stage.run_all()
    assert future.result() == 2
    await stage.engine.retire("m@1")
    await stage.engine.load("m@2", two())  # now there is room
    await stage.engine.close()
    at_rest(cache)


@in_loop
async def test_a_corrupt_shard_refuses_its_version_and_releases_the_others() -> None:
    cache, source = cache_of(100)
    source.script(key("b", "1"), [b"x" * 20])
    with pytest.raises(ChecksumMismatch):
        await staged(one(), cache=cache)
    at_rest(cache)


def test_a_model_that_cannot_load_releases_its_shards() -> None:
    class Broken(Echo):
        def load(self, shards: Any) -> None:
            raise ValueError("no such layer")

    async def test() -> None:
        cache, _ = cache_of(100)
        with pytest.raises(ValueError, match="no such layer"):
            await staged(Broken(shards=(key("a", "1"),)), cache=cache)
        at_rest(cache)

    run(test())


@in_loop
async def test_a_cancelled_load_goes_on_and_the_version_serves() -> None:
    cache, source = cache_of(140)
    stage = await staged(one(), cache=cache)
    source.gated = True
    loading = asyncio.create_task(stage.engine.load("m@2", two()))
    await turns()
    loading.cancel()
    await source.feed_all(key("a", "2"))
    await until(lambda: stage.engine.metrics()["versions"].get("m@2") == "serving")
    with pytest.raises(VersionRefused):
        await stage.engine.load("m@2", two())
    await stage.engine.close()
    at_rest(cache)


@in_loop
async def test_a_retired_version_comes_back_in_a_roll_back() -> None:
    cache, _ = cache_of(100)
    stage = await staged(one(), cache=cache)
    await stage.engine.retire("m@1")
    await stage.engine.load("m@1", stage.model, cost_ms=(10.0, 0.0))
    future = stage.offer(1)
    await stage.run_all()
    assert future.result() == 2


@pytest.mark.parametrize("name", ["m@3", "n@1"])
@in_loop
async def test_a_version_is_made_of_its_own_shards_only(name: str) -> None:
    cache, _ = cache_of(200)
    stage = await staged(one(), cache=cache)
    with pytest.raises(VersionRefused, match="cannot be made of"):
        await stage.engine.load(name, two())
    with pytest.raises(VersionRefused, match="not served"):
        await stage.engine.retire(name)


@in_loop
async def test_the_alarm_rings_at_the_earliest_moment_it_was_set_to() -> None:
    now, rung = ManualTime(), list[float]()
    alarm = Alarm(lambda: rung.append(now.now_ms), now.clock, now.later)
    alarm.set(1050.0)
    alarm.set(1080.0)
    alarm.set(1020.0)
    await now.advance(100.0)
    assert rung == [1020.0]
    alarm.set(1110.0)
    await now.advance(100.0)
    assert rung == [1020.0, 1110.0]
    alarm.set(1300.0)
    alarm.cancel()
    await now.advance(200.0)
    assert len(rung) == 2


@in_loop
async def test_with_a_real_thread_many_callers_get_their_own_results_and_the_thread_ends() -> None:
    config = SchedulerConfig(max_batch_tokens=16, max_batch_requests=16)
    pool, model = MemoryPool(1 << 16), Echo(poison={77})
    engine = open_engine(config, pool, workspace_bytes=1024)
    await engine.load("m@1", model)

    async def ask(number: int) -> object:
        request = engine.request("m@1", number, budget_ms=20_000.0)
        try:
            return await engine.submit(request, number)
        except ModelFailed:
            return "failed"

    answers = await asyncio.gather(*(ask(number) for number in range(300)))
    assert answers == ["failed" if number == 77 else 2 * number for number in range(300)]
    await engine.close()
    await until(lambda: not any(thread.name == "device" for thread in threading.enumerate()))
    pool.check_integrity()
    assert engine.open_requests == 0


@in_loop
async def test_with_a_real_thread_a_hanging_model_is_given_up_and_comes_back() -> None:
    gate = threading.Event()
    model = Echo(on_run=lambda: [gate.wait(20.0)].clear())
    limits = EngineConfig(stuck_after_ms=30.0, stuck_factor=1.0)
    engine = open_engine(SchedulerConfig(), MemoryPool(1 << 16), workspace_bytes=1024, limits=limits)
    await engine.load("m@1", model, cost_ms=(1.0, 0.0))
    with pytest.raises(DeviceStuck):
        await engine.submit(engine.request("m@1", 1, budget_ms=10_000.0), 1)
    with pytest.raises(Rejected, match="stuck"):
        await engine.submit(engine.request("m@1", 2, budget_ms=10_000.0), 2)
    gate.set()
    await until(lambda: engine.healthy)
    assert await engine.submit(engine.request("m@1", 3, budget_ms=10_000.0), 3) == 6
    await engine.close()


@in_loop
async def test_clients_that_time_out_at_random_never_hang_the_engine() -> None:
    model = Echo(on_run=lambda: time.sleep(0.001))
    engine = open_engine(SchedulerConfig(), MemoryPool(1 << 16), workspace_bytes=1024)
    await engine.load("m@1", model)

    async def ask(number: int) -> None:
        request = engine.request("m@1", number, budget_ms=20_000.0)
        try:
            async with asyncio.timeout(0.0003 * (number % 20)):
                assert await engine.submit(request, number) == 2 * number
        except TimeoutError:
            pass

    for _ in range(3):
        await asyncio.gather(*(ask(number) for number in range(200)))
    await until(lambda: engine.open_requests == 0)
    assert await engine.submit(engine.request("m@1", 5, budget_ms=10_000.0), 5) == 10
    await engine.close()
