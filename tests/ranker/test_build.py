"""Wiring: what a start needs, what stops it, and what is left open."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from features.catalogue import ActionSpec
from features.embedded_store import EmbeddedServer
from features.log import LogWriter
from features.memory_store import MemoryStore
from ranker.build import Surroundings, build
from ranker.clock import ManualClock
from ranker.errors import ConfigError
from ranker.opening import SAFETY_FILE
from ranker.policy_config import PolicyConfig
from ranker.release.registry import Registry
from tests.features.streams import EventStream, write_log
from tests.ranker.faults.loaded import rank
from tests.ranker.online import config_of, run, service

ARROW = "context → candidates → eligibility → policy → light → second → explore → safety → freshness → top actions"


def test_the_pipeline_is_the_arrow(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            assert str(desk.running.pipeline) == ARROW

    run(work())


def test_from_nothing_with_a_server_of_its_own_and_no_model_priors_rank(tmp_path: Path) -> None:
    async def work() -> None:
        running = await build(config_of(tmp_path), PolicyConfig(), Surroundings(environment={}))
        try:
            assert running.service.not_ready() == {}
            assert running.service.models() == {"active": None, "versions": [], "serving": None}
        finally:
            await running.close()

    run(work())


def test_closing_lets_the_next_one_write(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path):
            pass
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert "applier" not in names
        LogWriter.open(tmp_path / "log").close()

    run(work())


def broken_model(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "models")
    version = registry.publish({"light-plain.txt": b"not trees", "text-plain.safetensors": b"no"}, schema="x").version
    registry.activate(version, override="a test")


def model_without_trees(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "models")
    registry.activate(registry.publish({"notes.txt": b"none"}, schema="x").version, override="a test")


def damaged_model(tmp_path: Path) -> None:
    broken_model(tmp_path)
    (tmp_path / "models" / "1" / "text-plain.safetensors").write_bytes(b"it")


def broken_pointer(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "active").write_text("../../etc")


def broken_scorer(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / SAFETY_FILE).write_bytes(b"no scorer")


def log_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("no folder")


def short_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("short")


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (broken_model, "text-plain"),
        (model_without_trees, "light-plain"),
        (damaged_model, "sha256"),
        (broken_pointer, "etc"),
        (broken_scorer, SAFETY_FILE),
        (log_is_a_file, "log"),
        (short_secret, "secret"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_broken_stops_the_start_with_one_line_that_names_it(damage: object, word: str, tmp_path: Path) -> None:
    assert callable(damage)
    damage(tmp_path)
    with pytest.raises(ConfigError, match=word) as raised:
        run(start(tmp_path))
    assert "\n" not in str(raised.value)


def test_a_second_service_on_the_same_log_does_not_start(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path):
            with pytest.raises(ConfigError, match="writer"):
                await start(tmp_path)

    run(work())


WITHOUT_MODEL = ["light:missing"]


def test_with_a_store_that_is_down_priors_rank_until_it_comes(tmp_path: Path) -> None:
    write_log(tmp_path / "log", EventStream(1).take(50))

    async def work(folder: str) -> None:
        address = Path(folder) / "s"
        around = Surroundings(environment={}, actions={"share": ActionSpec()}, start_wait_s=0.0)
        running = await build(config_of(tmp_path, store=f"unix://{address}"), PolicyConfig(), around)
        server = None
        try:
            assert "features:unavailable" in (await rank(running)).degraded
            async with asyncio.timeout(10.0):
                while "cannot be reached" not in running.service.not_ready().get("store", ""):
                    await asyncio.sleep(0.01)
            server = await asyncio.to_thread(EmbeddedServer.start)
            address.symlink_to(server.socket_path)
            async with asyncio.timeout(20.0):
                while running.service.not_ready() or (await rank(running)).degraded != WITHOUT_MODEL:
                    await asyncio.sleep(0.02)
            assert running.applier.applied >= 50
        finally:
            await running.close()
            if server is not None:
                await asyncio.to_thread(server.close)

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        run(work(folder))


def test_an_embedded_store_whose_guard_is_killed_is_back_and_filled_again_while_the_service_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[EmbeddedServer] = []
    start = EmbeddedServer.start

    def noted(*args: Any, **named: Any) -> EmbeddedServer:
        started.append(start(*args, **named))
        return started[-1]

    monkeypatch.setattr(EmbeddedServer, "start", noted)
    write_log(tmp_path / "log", EventStream(1).take(50))

    async def work() -> None:
        around = Surroundings(environment={}, actions={"share": ActionSpec()})
        running = await build(config_of(tmp_path), PolicyConfig(), around)
        try:
            (server,) = started
            for times in (1, 2):
                assert (await rank(running)).degraded == WITHOUT_MODEL
                os.kill(server._guard.pid, signal.SIGKILL)
                async with asyncio.timeout(20.0):
                    while running.service.status()["store"]["restarts"] < times:
                        assert (await rank(running)).items
                        await asyncio.sleep(0.02)
                    while running.service.not_ready() or (await rank(running)).degraded != WITHOUT_MODEL:
                        await asyncio.sleep(0.02)
                assert server.running
        finally:
            await running.close()
        assert not server.running and not server.socket_path.parent.exists()

    run(work())


def test_a_log_that_was_there_is_in_effect_once_started(tmp_path: Path) -> None:
    write_log(tmp_path / "log", EventStream(1).take(300))

    async def work() -> None:
        async with service(tmp_path, actions={}) as desk:
            assert desk.running.applier.applied == 300
            assert len(desk.running.service.actions()) > 0
            snapshot = desk.running.service.status()
            assert snapshot["applier"]["rebuilds"] == 1
        assert (tmp_path / "log" / "catalogue.json").exists()
        before = desk.running.service.actions()
        async with service(tmp_path, actions={}, store=desk.store) as desk:
            assert desk.running.service.actions() == before
            assert desk.running.service.status()["applier"]["rebuilds"] == 0

    run(work())


async def start(tmp_path: Path) -> None:
    around = Surroundings(clock=ManualClock(), environment={}, store=MemoryStore())
    running = await build(config_of(tmp_path), PolicyConfig(), around)
    await running.close()
