"""A version that is activated while the service runs comes to serve; one that is broken does not."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from features.memory_store import MemoryStore
from features.registry import FINGERPRINT
from ranker.build import Running, Surroundings, build
from ranker.errors import ConfigError
from ranker.light_model import PLAIN, text_file, trees_file
from ranker.model_watch import ModelWatch
from ranker.policy_config import PolicyConfig
from ranker.release.durable import replace_atomically
from ranker.release.registry import Registry
from ranker.stages.light import Light, LightModel
from tests.fakes import FakeModel
from tests.ranker.online import ACTIONS, config_of, run, specs_of
from tests.ranker.test_light_model import text, trees


def published(registry: Registry, seed: int = 1, schema: str = FINGERPRINT) -> str:
    files = {trees_file(PLAIN): trees(seed, rounds=2), text_file(PLAIN): text(float(seed))}
    return registry.publish(files, schema=schema).version


def damage(registry: Registry, version: str) -> None:
    path = registry.folder / version / trees_file(PLAIN)
    path.write_bytes(path.read_bytes()[:-7] + b"another")


def point(registry: Registry, version: str) -> None:
    """Moves the pointer as only a broken tool would: unverified."""
    replace_atomically(registry.folder / "active", f"{version}\n".encode())


async def started(tmp_path: Path) -> Running:
    around = Surroundings(environment={}, store=MemoryStore(), actions=specs_of(ACTIONS), look_s=0.01)
    return await build(config_of(tmp_path), PolicyConfig(), around)


async def until(running: Running, **expected: Any) -> dict[str, Any]:
    while True:
        models = running.service.models()
        if all(models.get(name) == value for name, value in expected.items()):
            return models
        await asyncio.sleep(0.005)


def test_an_activated_version_serves_without_a_restart_and_so_does_the_one_before_again(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "models")

    async def work() -> None:
        running = await started(tmp_path)
        try:
            assert running.service.models()["serving"] is None
            for version in (published(registry, 1), published(registry, 2), "1"):
                registry.activate(version, override="a test")
                models = await until(running, serving=version)
                assert (models["active"], "refused" in models) == (version, False)
            assert running.service.status()["models"] == {"loads": 3, "failures": 0}
        finally:
            await running.close()
        assert "model watch" not in {task.get_name() for task in asyncio.all_tasks()}

    run(work())


def test_a_broken_version_is_told_and_the_one_before_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry(tmp_path / "models")
    registry.activate(published(registry, 1), override="a test")
    other, broken, good = published(registry, 2, schema="another"), published(registry, 3), published(registry, 4)
    damage(registry, broken)

    async def work() -> None:
        running = await started(tmp_path)
        try:
            for number, (version, word) in enumerate([(broken, "sha256"), (other, "schema"), ("99", "99")], 1):
                point(registry, version)
                while running.service.status()["models"]["failures"] < number:
                    await asyncio.sleep(0.005)
                models = running.service.models()
                assert models["serving"] == "1"
                assert models["refused"]["version"] == version
                assert word in models["refused"]["error"]
                await asyncio.sleep(0.1)
                assert running.service.status()["models"]["failures"] == number, "not tried again at once"
            registry.activate(good, override="a test")
            assert "refused" not in await until(running, serving=good)
        finally:
            await running.close()

    with caplog.at_level(logging.ERROR, "ranker.model_watch"):
        run(work())
    assert len(caplog.records) == 3


class Loader:
    """Loads what it is told to; remembers in which thread."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.error: Exception | None = None

    def __call__(self, version: str) -> LightModel:
        self.threads.append(threading.get_ident())
        if self.error is not None:
            raise self.error
        return FakeModel(version=version, schema=FINGERPRINT)


def watch_of(tmp_path: Path, load: Loader, retry_looks: int = 3) -> ModelWatch:
    registry = Registry(tmp_path)
    registry.activate(registry.publish({"any": b"thing"}, schema=FINGERPRINT).version, override="a test")
    return ModelWatch(registry, Light(FINGERPRINT, FakeModel(version="0")), load, retry_looks=retry_looks)


def test_a_version_is_loaded_once_and_not_on_the_event_loop(tmp_path: Path) -> None:
    load = Loader()
    watch = watch_of(tmp_path, load)

    async def work() -> None:
        for _ in range(3):
            await watch.look()
        assert (watch.serving, watch.loads) == ("1", 1)
        assert len(load.threads) == 1 and load.threads != [threading.get_ident()]

    run(work())


def test_what_failed_is_tried_again_after_a_while_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load = Loader()
    load.error = ConfigError("the disk was away")
    watch = watch_of(tmp_path, load, retry_looks=3)

    async def work() -> None:
        for _ in range(7):
            await watch.look()
        assert (watch.serving, watch.failures) == ("0", 3)
        assert watch.refused == ("1", "the disk was away")
        load.error = None
        for _ in range(3):
            await watch.look()
        assert watch.serving == "1"
        assert watch.loads == 1

    with caplog.at_level(logging.ERROR, "ranker.model_watch"):
        run(work())
    assert len(caplog.records) == 1


def test_without_a_pointer_what_serves_goes_on(tmp_path: Path) -> None:
    watch = watch_of(tmp_path, Loader())
    (tmp_path / "active").unlink()

    async def work() -> None:
        await watch.look()
        assert (watch.serving, watch.failures) == ("0", 0)

    run(work())
