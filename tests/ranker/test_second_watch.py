"""When the second stage is opened, and when that is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from features.registry import FINGERPRINT
from ranker.degraded import Degraded
from ranker.release.manifest import Manifest, SecondEntry
from ranker.release.registry import Registry
from ranker.retry import RETRY_LOOKS
from ranker.second_watch import SecondWatch
from ranker.types import Ranking

ENTRY = SecondEntry(tokens=1, sizes={}, vocabularies={}, shards=[], worth={}, passed_on=50, light="1")


class FakeDesk:
    """Notes what it is told to follow."""

    def __init__(self) -> None:
        self.followed: list[str | None] = []

    async def follow(self, version: str | None) -> None:
        self.followed.append(version)

    async def rescore(self, ranking: Ranking) -> Degraded | None:
        return None

    async def close(self) -> None:
        self.followed.append("closed")

    def status(self) -> Mapping[str, Any]:
        return {}


def registry_of(folder: Path, second: SecondEntry | None = ENTRY) -> Registry:
    registry = Registry(folder)
    registry.publish({"any": b"thing"}, schema=FINGERPRINT, second=second)
    return registry


def test_nothing_is_opened_before_a_version_has_a_second_stage(tmp_path: Path) -> None:
    registry, opened = registry_of(tmp_path, second=None), list[FakeDesk]()

    def open_desk() -> FakeDesk:
        opened.append(FakeDesk())
        return opened[-1]

    watch = SecondWatch(registry, lambda: "1", open_desk, 0.01)

    async def looks() -> None:
        for _ in range(3):
            await watch.look()

    asyncio.run(looks())
    assert opened == []


def test_a_registry_that_could_not_be_read_is_asked_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, desk, asked = registry_of(tmp_path), FakeDesk(), 0
    real = registry.manifest

    def failing(version: str) -> Manifest:
        nonlocal asked
        asked += 1
        if asked == 1:
            return real("not there")
        return real(version)

    monkeypatch.setattr(registry, "manifest", failing)
    watch = SecondWatch(registry, lambda: "1", lambda: desk, 0.01)

    async def looks(count: int) -> None:
        for _ in range(count):
            await watch.look()

    asyncio.run(looks(RETRY_LOOKS))
    assert (asked, desk.followed) == (1, [])
    asyncio.run(looks(2))
    assert asked == 2 and desk.followed == ["1", "1"]


def test_without_the_extra_it_is_said_once_and_the_light_stage_goes_on(tmp_path: Path) -> None:
    asked = 0

    def open_desk() -> FakeDesk:
        nonlocal asked
        asked += 1
        raise ImportError("No module named 'torch'")

    watch = SecondWatch(registry_of(tmp_path), lambda: "1", open_desk, 0.01)

    async def looks() -> None:
        for _ in range(2 * RETRY_LOOKS):
            await watch.look()

    asyncio.run(looks())
    assert asked == 1 and watch.status() == {}
