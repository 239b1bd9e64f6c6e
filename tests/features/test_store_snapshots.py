"""A store that starts from a snapshot holds what its log says, whatever the snapshot is."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from features import store_marks
from features.applier import Applier
from features.embedded_store import EmbeddedServer, open_embedded_store
from features.redis_store import RedisStore
from features.store import Commit
from features.store_snapshots import SnapshotFolder
from tests.features.oracle import assert_holds_the_log
from tests.features.streams import EventStream, write_log
from tests.features.test_applier import QUICK, event_with_other_id
from tests.features.test_embedded_store import answers, eventually, gone, server_pid

PATIENT_MS = 5000.0


def snapshots(tmp_path: Path, save_every_s: int = 3600) -> SnapshotFolder:
    return SnapshotFolder(tmp_path / "store", save_every_s)


def run(work: Awaitable[None]) -> None:
    async def with_limit() -> None:
        async with asyncio.timeout(30):
            await work

    asyncio.run(with_limit())


@asynccontextmanager
async def opened(folder: SnapshotFolder) -> AsyncIterator[RedisStore]:
    store = open_embedded_store(timeout_ms=PATIENT_MS, snapshots=folder)
    try:
        yield store
    finally:
        await store.close()


async def caught_up(logdir: Path, end: int, folder: SnapshotFolder) -> Applier:
    """A start: what it did to bring the store to the log's first events."""
    async with opened(folder) as store:
        applier = Applier(logdir, lambda: end, store, monotonic_ms=lambda: 0.0, settings=QUICK)
        await applier.recover()
        applier.close()
        if end == sum(1 for _ in (logdir / "p0").glob("nothing")) or True:
            await assert_holds_the_log_up_to(store, logdir, end)
    return applier


async def assert_holds_the_log_up_to(store: RedisStore, logdir: Path, end: int) -> None:
    assert (await store.read([])).applied == end
    if end == COUNT:
        await assert_holds_the_log(store, logdir)


COUNT = 400


def test_the_next_start_applies_only_what_came_after_the_snapshot(tmp_path: Path) -> None:
    write_log(tmp_path / "log", EventStream(1).take(COUNT))

    async def work() -> None:
        first = await caught_up(tmp_path / "log", 350, snapshots(tmp_path))
        assert (first.counts.rebuilds, first.counts.events) == (1, 0)
        second = await caught_up(tmp_path / "log", COUNT, snapshots(tmp_path))
        assert (second.counts.rebuilds, second.counts.take_overs, second.counts.events) == (0, 1, 50)

    run(work())
