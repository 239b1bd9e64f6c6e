"""A service that is killed, or whose store dies, comes back to what its log says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

from features.embedded_store import open_embedded_store
from features.memory_store import MemoryStore
from features.redis_store import RedisStore
from features.store_snapshots import SnapshotFolder
from ranker.build import Surroundings, build
from ranker.client import Client
from ranker.degraded import Degraded
from ranker.policy_config import PolicyConfig
from tests.command_line import process
from tests.features.oracle import assert_holds_the_log, end_of
from tests.features.streams import EventStream, write_log
from tests.features.test_embedded_store import ask, eventually, gone, row_keys, server_pid
from tests.ranker.online import QUICK, Desk, config_of, run, service


def test_a_service_that_is_killed_starts_from_its_snapshot_and_applies_the_rest(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_log(log, EventStream(1).take(300))
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with process("serve", "--json", "--port", 0, "--log", log, "--models", tmp_path / "models") as started:
            assert started.stdout is not None
            with Client(json.loads(started.stdout.readline())["url"]) as client:
                client.wait_ready()
                if ending == signal.SIGKILL:
                    answer = client.rank({"user": "u1", "context": {"surface": "chat"}})
                    client.seen("u1", answer)
            started.send_signal(ending)
            started.wait()
    written = end_of(log)
    assert written > 300

    async def work() -> None:
        around = Surroundings(environment={}, applier=QUICK)
        running = await build(config_of(tmp_path), PolicyConfig(), around)
        try:
            assert running.service.not_ready() == {}
            counts = running.applier.counts
            assert (counts.rebuilds, counts.take_overs, counts.events) == (0, 1, written - 300)
            store = running.service.owners.store
            assert isinstance(store, RedisStore)
            await assert_holds_the_log(store, log, row_keys(Path(str(store._address.path))))
        finally:
            await running.close()

    run(work())


def test_priors_rank_while_the_store_is_down_and_it_comes_back_whole(tmp_path: Path) -> None:
    async def work() -> None:
        folder = SnapshotFolder(tmp_path / "log" / "store")
        store = open_embedded_store(timeout_ms=1000.0, snapshots=folder)
        path = Path(str(store._address.path))
        try:
            async with service(tmp_path, store=store) as desk:
                await desk.post(*[desk.event(action="share") for _ in range(5)])
                await desk.applied()
                await kill(path)
                await comes_back(desk, store)
                await asyncio.to_thread(save, path)
                await desk.post(*[desk.event(action="crop") for _ in range(5)])
                await desk.applied()
                await kill(path)
                await comes_back(desk, store)
                counts = desk.running.applier.counts
                assert (counts.rebuilds, counts.take_overs, counts.crashes) == (2, 1, 0), "one is that of the start"
        finally:
            await store.close()

    run(work())


def test_a_store_ahead_of_a_log_that_lost_its_end_to_a_power_cut_is_filled_anew(tmp_path: Path) -> None:
    async def work() -> None:
        store = MemoryStore()
        async with service(tmp_path, store=store) as desk:
            await desk.post(desk.event(action="share"))
            await desk.rank()
            await desk.applied()
        (segment,) = (tmp_path / "log").glob("*/*.jsonl")
        kept = segment.read_bytes().splitlines(keepends=True)[:-1]
        segment.write_bytes(b"".join(kept))
        async with service(tmp_path, store=store, ids="m") as desk:
            assert desk.running.applier.counts.rebuilds == 1
            held = await desk.running.service.user("u1")
            assert (held["counters"], held["rankings"]) == ({"share": {"self": 1}}, 0), "the ranking is lost"
            assert (await desk.rank()).degraded == []

    run(work())


def save(path: Path) -> None:
    assert ask(path, "SAVE").startswith("+OK")


async def kill(path: Path) -> None:
    pid = server_pid(path)
    os.kill(pid, signal.SIGKILL)
    assert await asyncio.to_thread(eventually, lambda: gone(pid))


async def comes_back(desk: Desk, store: RedisStore) -> None:
    answer = await desk.rank()
    assert answer.items
    assert str(Degraded.FEATURES_UNAVAILABLE) in answer.degraded
    while (await desk.rank()).degraded:
        await asyncio.sleep(0.02)
    await desk.applied()
    await assert_holds_the_log(store, desk.logdir)
