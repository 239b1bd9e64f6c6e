"""What an engine is given beside a model: a thread set up, payloads to warm it with, pages to report, and shadow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ranker.inference.engine import DeviceStuck, EngineConfig, ModelFailed, Rejected, open_engine
from ranker.inference.memory_report import memory_report
from ranker.inference.model import Member
from ranker.inference.pages import PageConfig, Pages, Scope
from ranker.inference.pool import MemoryPool
from ranker.inference.scheduler import SchedulerConfig
from ranker.inference.shards import ShardCache
from ranker.inference.workspace import Workspace
from tests.ranker.inference.engine_fakes import Echo, Stage, in_loop, run, staged, turns
from tests.ranker.inference.shard_fakes import ScriptedSource, at_rest, key


class Threaded(Echo):
    """Remembers where it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def run(self, members: Sequence[Member], workspace: Workspace) -> Sequence[Any]:
        self.threads.append(threading.get_ident())
        return super().run(members, workspace)


def threaded(begin: Any) -> tuple[list[int], list[Any]]:
    """Threads of the model's runs, and the answers, of an engine that begins like this."""
    model, answers = Threaded(), []

    async def test() -> None:
        engine = open_engine(SchedulerConfig(), MemoryPool(1 << 16), workspace_bytes=1024, begin=begin)
        await engine.load("m@1", model, cost_ms=(1.0, 0.0))
        answers.extend([await engine.submit(engine.request("m@1", n, budget_ms=5000.0), n) for n in range(3)])
        await engine.close()

    run(test())
    return model.threads, answers


def test_the_devices_thread_is_set_up_once_before_its_first_batch() -> None:
    begun: list[int] = []
    threads, answers = threaded(lambda: begun.append(threading.get_ident()))
    assert answers == [0, 2, 4] and threads == begun * 3
    assert begun[0] != threading.get_ident()


def test_a_thread_that_cannot_be_set_up_serves_all_the_same_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def begin() -> None:
        raise OSError("no such core")

    assert threaded(begin)[1] == [0, 2, 4]
    assert "could not be set up" in caplog.text


async def warmed(stage: Stage, model: Echo, warm: list[Any]) -> asyncio.Task[None]:
    loading = asyncio.create_task(stage.engine.load("m@2", model, warm=warm))
    await asyncio.sleep(0.02)  # `load` runs in a thread of its own
    await turns()
    return loading


@in_loop
async def test_a_version_is_run_with_what_it_is_warmed_with_before_anybody_may_ask() -> None:
    stage, model = await staged(), Echo()
    loading = await warmed(stage, model, [7, 1])
    assert stage.device.busy and not loading.done()
    with pytest.raises(Rejected, match="loading"):
        await stage.engine.submit(stage.request(5, model="m@2"), 5)
    await stage.finish()
    await stage.finish()
    await loading
    assert model.ran == [[7], [1]]
    after = stage.offer(5, model="m@2")
    await stage.run_all()
    assert after.result() == 10 and stage.engine.metrics()["cost_ms"]["m@2"]["one"] > 0.0
    stage.at_rest()


@in_loop
async def test_a_version_that_fails_when_warmed_is_refused_and_keeps_nothing() -> None:
    source = ScriptedSource({key("a", "2"): 10})
    cache = ShardCache(capacity_bytes=10, source=source)
    stage = await staged(cache=cache)
    model = Echo(poison={1}, shards=(key("a", "2"),))
    loading = await warmed(stage, model, [7, 1])
    await stage.finish()
    await stage.finish()
    with pytest.raises(ModelFailed, match="poisoned"):
        await loading
    assert model.loaded is None and "m@2" not in stage.engine.metrics()["versions"]
    at_rest(cache)
    again = await warmed(stage, Echo(shards=(key("a", "2"),)), [])
    await again
    after = stage.offer(3, model="m@1"), stage.offer(4, model="m@2")
    await stage.run_all()
    assert [each.result() for each in after] == [6, 8]
    await stage.engine.close()
    stage.at_rest()


@in_loop
async def test_a_version_that_hangs_when_warmed_is_reported_and_let_go_when_the_device_comes_back() -> None:
    stage = await staged(limits=EngineConfig(stuck_after_ms=100.0))
    model = Echo()
    loading = await warmed(stage, model, [7])
    await stage.time.advance(200.0)
    with pytest.raises(DeviceStuck):
        await loading
    assert stage.engine.metrics()["versions"]["m@2"] == "leaving"
    with pytest.raises(Rejected, match="stuck"):
        await stage.engine.load("m@3", Echo(), warm=[1])
    await stage.device.finish()
    await asyncio.sleep(0.02)
    assert set(stage.engine.metrics()["versions"]) == {"m@1"}
    after = stage.offer(3)
    await stage.run_all()
    assert after.result() == 6
    stage.at_rest()


@in_loop
async def test_shadow_runs_on_what_is_left_and_never_before_others() -> None:
    stage = await staged(config=SchedulerConfig(max_batch_tokens=2, max_batch_requests=2, max_wait_ms=0.0))
    running = stage.offer(0)
    await turns()
    shadow = stage.engine.offer(stage.request(100, None, priority="shadow"), 100)  # type: ignore[arg-type]
    others = [stage.offer(number, 1000.0) for number in range(1, 6)]
    await stage.run_all()
    assert stage.model.ran[-1] == [100] and shadow.result() == 200
    assert running.result() == 0 and [each.result() for each in others] == [2, 4, 6, 8, 10]
    stage.at_rest()


@in_loop
async def test_shadow_is_the_first_to_leave_a_full_queue() -> None:
    config = SchedulerConfig(max_batch_tokens=1, max_batch_requests=1, max_queue_requests=2)
    stage = await staged(config=config)
    running = stage.offer(0)
    await turns()
    shadow, normal = stage.offer(1, 1000.0, priority="shadow"), stage.offer(2, 1000.0)
    late = stage.offer(3, 1000.0)
    await turns()
    with pytest.raises(Rejected, match="queue_full"):
        shadow.result()
    await stage.run_all()
    assert [each.result() for each in (running, normal, late)] == [0, 4, 6]
    stage.at_rest()


@in_loop
async def test_an_engine_gives_the_memory_report_its_pool_its_pages_and_its_shards(tmp_path: Path) -> None:
    source = ScriptedSource({key("a", "1"): 10})
    cache = ShardCache(capacity_bytes=64, source=source)
    pages = Pages(PageConfig(8, 2, 4, 16))
    engine = open_engine(SchedulerConfig(), MemoryPool(1 << 16), workspace_bytes=1024, cache=cache, pages=pages)
    await engine.load("m@1", Echo(shards=(key("a", "1"),)))
    with pages.open(Scope("m@1", "s", "fp32", "u"), [b"1"] * 9) as history:
        history.commit()
    report = memory_report([engine.memory_source("second")])
    (found,) = report.pools
    assert found.name == "second" and found.profile.used_bytes == 1024
    assert found.profile.pages is not None and found.profile.pages.full.cached == 2
    assert found.shards is not None and found.shards.resident_by_version == {"m@1": 10}
    metrics = engine.metrics()["pages"]
    assert (metrics["full"]["cached"], metrics["tokens_new"], metrics["open"]) == (2, 9, 0)
    await engine.close()
