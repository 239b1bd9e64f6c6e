"""A store that starts from a snapshot holds what its log says, whatever the snapshot is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import shutil
import signal
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from features import store_marks
from features.applier import Applier
from features.embedded_store import EmbeddedServer, open_embedded_store
from features.errors import StoreError
from features.redis_store import RedisStore
from features.store import Commit
from features.store_snapshots import SnapshotFolder
from tests.features.oracle import assert_holds_the_log, end_of
from tests.features.streams import EventStream, write_log
from tests.features.test_applier import QUICK, event_with_other_id
from tests.features.test_embedded_store import answers, ask, eventually, gone, row_keys, server_pid

PATIENT_MS = 5000.0
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def run(work: Awaitable[None]) -> None:
    async def with_limit() -> None:
        async with asyncio.timeout(40):
            await work

    asyncio.run(with_limit())


@pytest.fixture
def folder(tmp_path: Path) -> SnapshotFolder:
    return SnapshotFolder(tmp_path / "store", save_every_s=3600)


@asynccontextmanager
async def opened(folder: SnapshotFolder) -> AsyncIterator[RedisStore]:
    store = open_embedded_store(timeout_ms=PATIENT_MS, snapshots=folder)
    try:
        yield store
    finally:
        await store.close()


def socket_of(store: RedisStore) -> Path:
    return Path(str(store._address.path))


def applier_of(logdir: Path, store: RedisStore) -> Applier:
    end = end_of(logdir)
    return Applier(logdir, lambda: end, store, monotonic_ms=lambda: 0.0, settings=QUICK)


async def start(logdir: Path, folder: SnapshotFolder) -> Applier:
    """A start and a clean end; in between the store holds the whole log."""
    async with opened(folder) as store:
        applier = applier_of(logdir, store)
        await applier.recover()
        applier.close()
        await assert_holds_the_log(store, logdir, row_keys(socket_of(store)))
    return applier


def test_the_next_start_applies_only_what_came_after_the_snapshot(tmp_path: Path, folder: SnapshotFolder) -> None:
    events = EventStream(1).take(400)

    async def work() -> None:
        write_log(tmp_path / "log", events[:350])
        first = await start(tmp_path / "log", folder)
        assert (first.counts.rebuilds, first.counts.events) == (1, 0)
        write_log(tmp_path / "log", events[350:])
        second = await start(tmp_path / "log", folder)
        assert (second.counts.rebuilds, second.counts.take_overs, second.counts.events) == (0, 1, 50)

    run(work())


@on_linux
def test_after_a_kill_the_last_snapshot_is_used(tmp_path: Path) -> None:
    events, folder = EventStream(2).take(400), SnapshotFolder(tmp_path / "store", save_every_s=1)

    async def work() -> None:
        write_log(tmp_path / "log", events[:350])
        async with opened(folder) as store:
            applier = applier_of(tmp_path / "log", store)
            await applier.recover()
            applier.close()
            path = socket_of(store)
            saved = "rdb_changes_since_last_save:0"
            assert eventually(lambda: folder.file.exists() and saved in ask(path, "INFO persistence"))
            pid = server_pid(path)
            os.kill(parent_of(pid), signal.SIGKILL)
            assert eventually(lambda: gone(pid))
        write_log(tmp_path / "log", events[350:])
        second = await start(tmp_path / "log", folder)
        assert (second.counts.rebuilds, second.counts.take_overs, second.counts.events) == (0, 1, 50)

    run(work())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def write_text(path: Path) -> None:
    path.write_text("this is no snapshot")


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, write_text, empty], ids=lambda damage: damage.__name__)
def test_a_snapshot_that_cannot_be_loaded_is_set_aside_and_the_log_is_read(
    damage: Callable[[Path], None], tmp_path: Path, folder: SnapshotFolder, caplog: pytest.LogCaptureFixture
) -> None:
    write_log(tmp_path / "log", EventStream(3).take(200))

    async def work() -> None:
        await start(tmp_path / "log", folder)
        damage(folder.file)
        with caplog.at_level(logging.WARNING):
            second = await start(tmp_path / "log", folder)
        assert second.counts.rebuilds == 1
        assert [record.message for record in caplog.records if str(folder.file) in record.message] == [
            caplog.records[0].message
        ]
        assert sorted(path.name for path in folder.path.iterdir()) == ["store.rdb", "store.rdb.broken"]
        third = await start(tmp_path / "log", folder)
        assert third.counts.rebuilds == 0
        assert sorted(path.name for path in folder.path.iterdir()) == ["store.rdb"]

    run(work())


def test_a_snapshot_of_another_log_is_not_believed(tmp_path: Path, folder: SnapshotFolder) -> None:
    write_log(tmp_path / "one", EventStream(4).take(200))
    write_log(tmp_path / "other", [event_with_other_id(event) for event in EventStream(5).take(300)])

    async def work() -> None:
        for name in ("one", "other"):
            applier = await start(tmp_path / name, folder)
            assert applier.counts.rebuilds == 1

    run(work())


def test_a_snapshot_ahead_of_its_log_is_not_believed(tmp_path: Path, folder: SnapshotFolder) -> None:
    events = EventStream(6).take(200)
    write_log(tmp_path / "whole", events)
    write_log(tmp_path / "cut", events[:150])

    async def work() -> None:
        for name in ("whole", "cut"):
            applier = await start(tmp_path / name, folder)
            assert applier.counts.rebuilds == 1

    run(work())


def test_a_snapshot_made_by_other_code_is_not_believed(
    tmp_path: Path, folder: SnapshotFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "log", EventStream(7).take(200))

    async def work() -> None:
        await start(tmp_path / "log", folder)
        monkeypatch.setattr(store_marks, "STATE_FORMAT", "another")
        assert (await start(tmp_path / "log", folder)).counts.rebuilds == 1
        assert (await start(tmp_path / "log", folder)).counts.rebuilds == 0

    run(work())


@pytest.mark.parametrize(
    "change",
    [("ROWS_VERSION", 999), ("FINGERPRINT", "0" * 16), ("ROWS", store_marks.ROWS[:-1])],
    ids=lambda change: change[0],
)
def test_the_state_format_follows_from_the_code_that_makes_rows(
    change: tuple[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store_marks.state_format() == store_marks.STATE_FORMAT
    monkeypatch.setattr(store_marks, *change)
    assert store_marks.state_format() != store_marks.STATE_FORMAT


def test_a_snapshot_of_something_else_does_not_fill_the_memory(
    tmp_path: Path, folder: SnapshotFolder, caplog: pytest.LogCaptureFixture
) -> None:
    write_log(tmp_path / "log", EventStream(8).take(50))
    foreign = EmbeddedServer.start(snapshots=folder)
    foreign.ask("SET theirs 1")
    foreign.close()
    assert folder.file.exists()

    async def work() -> None:
        async with opened(folder) as store:
            assert ask(socket_of(store), "DBSIZE").startswith(":0")
        assert "not of this service" in caplog.text
        await start(tmp_path / "log", folder)

    run(work())


def test_rows_keep_their_time_to_live(folder: SnapshotFolder) -> None:
    async def work() -> None:
        async with opened(folder) as store:
            await store.commit(Commit(1, {"u:1": (b"long", 60), "u:2": (b"short", 1)}))
        await asyncio.sleep(1.1)
        async with opened(folder) as store:
            assert (await store.read(["u:1", "u:2"])).rows == (b"long", None)
            left_ms = int(ask(socket_of(store), "PTTL na:u:1")[1:].split()[0])
            assert 0 < left_ms < 59_000

    run(work())


def test_the_folder_is_private_and_holds_one_file(folder: SnapshotFolder) -> None:
    async def work() -> None:
        folder.path.mkdir(mode=0o755)
        (folder.path / "temp-77.rdb").write_bytes(b"half a snapshot of a server that was killed")
        for applied in (1, 2, 3):
            async with opened(folder) as store:
                await store.commit(Commit(applied, {"u:1": (b"x", 60)}))
        assert [path.name for path in folder.path.iterdir()] == ["store.rdb"]
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.file.stat().st_mode) == 0o600

    run(work())


def test_what_has_not_changed_is_not_written_again(folder: SnapshotFolder) -> None:
    async def work() -> None:
        async with opened(folder) as store:
            await store.commit(Commit(1))
        written_ns = folder.file.stat().st_mtime_ns
        async with opened(folder) as store:
            assert (await store.read([])).applied == 1
        assert folder.file.stat().st_mtime_ns == written_ns

    run(work())


def test_a_folder_that_cannot_be_used_is_done_without(
    tmp_path: Path, folder: SnapshotFolder, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.path.symlink_to(tmp_path / "elsewhere")

    async def work() -> None:
        async with opened(folder) as store:
            await store.commit(Commit(1))
        assert list((tmp_path / "elsewhere").iterdir()) == []
        assert "without a snapshot" in caplog.text

    run(work())


def test_a_snapshot_that_cannot_be_written_refuses_no_commit(
    folder: SnapshotFolder, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with opened(folder) as store:
            await store.commit(Commit(1))
            shutil.rmtree(folder.path)  # as good as a full disk: a file cannot be made
            ask(socket_of(store), "BGSAVE")
            failed = "rdb_last_bgsave_status:err"
            assert eventually(lambda: failed in ask(socket_of(store), "INFO persistence"))
            await store.commit(Commit(2, {"u:1": (b"x", 60)}))
            assert (await store.read(["u:1"])).rows == (b"x",)
        assert "snapshot was not written" in caplog.text

    run(work())


def test_a_server_that_dies_comes_back_with_its_last_snapshot(folder: SnapshotFolder) -> None:
    server = EmbeddedServer.start(snapshots=folder)
    try:
        server.ask("SET kept 1")
        server.ask("SAVE")
        server.ask("SET lost 1")
        die(server.socket_path)
        assert server.ask("MGET kept lost") == b"*2\r\n$1\r\n1\r\n$-1\r\n"
    finally:
        server.close()


@on_linux
def test_who_writes_a_snapshot_ends_with_the_server(folder: SnapshotFolder) -> None:
    server = EmbeddedServer.start(snapshots=folder)
    server.ask("CONFIG SET rdb-key-save-delay 1000000")  # µs a key
    for number in range(30):
        server.ask(f"SET {number} 1")
    server.ask("BGSAVE")
    children = Path(f"/proc/{server_pid(server.socket_path)}/task/{server_pid(server.socket_path)}/children")
    (writer,) = map(int, children.read_text().split())
    assert not gone(writer)
    server._stop()
    assert eventually(lambda: gone(writer))


def test_a_server_that_dies_of_its_snapshot_comes_back_without(folder: SnapshotFolder) -> None:
    server = EmbeddedServer.start(snapshots=folder)
    try:
        write_text(folder.file)
        die(server.socket_path)
        assert server.ask("DBSIZE") == b":0\r\n"
        assert folder.broken.read_text() == "this is no snapshot"
    finally:
        server.close()


def die(path: Path) -> None:
    """Kills a server and returns when it is back."""
    pid = server_pid(path)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: gone(pid) and answers(path))


@pytest.mark.parametrize("seed", range(3))
def test_a_server_that_dies_again_and_again_ends_up_with_the_whole_log(
    seed: int, tmp_path: Path, folder: SnapshotFolder
) -> None:
    write_log(tmp_path / "log", EventStream(seed).take(900))
    draw = random.Random(seed)

    async def work() -> None:
        async with opened(folder) as store:
            path, end = socket_of(store), 0
            applier = Applier(tmp_path / "log", lambda: end, store, monotonic_ms=lambda: 0.0, settings=QUICK)
            task = asyncio.create_task(applier.run())
            for _ in range(4):
                end += 200
                await asyncio.sleep(draw.random() * 0.1)
                if draw.random() < 0.5:
                    await asyncio.to_thread(ask, path, "SAVE")
                await asyncio.sleep(draw.random() * 0.1)
                await asyncio.to_thread(die, path)
            end = 900
            await settled(store, applier)
            task.cancel()
            await asyncio.wait([task])
            applier.close()
            await assert_holds_the_log(store, tmp_path / "log", row_keys(path))

    run(work())


async def settled(store: RedisStore, applier: Applier) -> None:
    """Returns when the store itself says that everything is in effect."""
    while True:
        with contextlib.suppress(StoreError):  # its circuit may still be open
            if (await store.read([])).applied == applier.applied == 900:
                return
        await asyncio.sleep(0.01)
