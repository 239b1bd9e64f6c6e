"""The writer: offsets, segments, durability, and what a broken disk does to it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from features.errors import LogError, LogLocked, LogUnavailable
from features.log import FileCalls, LogWriter, read_lines


@dataclass
class FakeDisk:
    """A disk that has `room` bytes left and whose syncs may fail; counts syncs."""

    room: int = 1 << 40
    can_create: bool = True
    can_truncate: bool = True
    sync_error: bool = False
    sync_s: float = 0.0
    syncs: list[int] = field(default_factory=list)

    def calls(self) -> FileCalls:
        real = FileCalls()

        def write(fd: int, block: bytes) -> int:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = os.write(fd, block[: self.room])
            self.room -= written
            return written

        def truncate(fd: int, size: int) -> None:
            if not self.can_truncate:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            os.ftruncate(fd, size)

        def create(path: Path) -> int:
            if not self.can_create:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real.create(path)

        def fdatasync(fd: int) -> None:
            time.sleep(self.sync_s)
            if self.sync_error:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.syncs.append(fd)

        return replace(real, write=write, truncate=truncate, create=create, fdatasync=fdatasync)


def lines_of(logdir: Path) -> list[tuple[int, bytes]]:
    return [(raw.offset, raw.line) for raw in read_lines(logdir)]


def segment_names(logdir: Path) -> list[str]:
    return sorted(path.name for path in (logdir / "partition-0").glob("*.jsonl"))


def test_offsets_count_lines_and_go_on_after_reopening(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path / "new" / "log") as writer:
        assert [writer.append([b"a", b"b"]), writer.append([]), writer.append([b"c"])] == [0, 2, 2]
        assert writer.end == 3
    with LogWriter.open(tmp_path / "new" / "log") as writer:
        assert (writer.end, writer.durable, writer.append([b"d"])) == (3, 3, 3)
    assert lines_of(tmp_path / "new" / "log") == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_segments_rotate_by_size_and_are_named_by_their_first_offset(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path, segment_bytes=10) as writer:
        for line in (b"1234", b"1234", b"1234", b"much longer than a segment", b"x"):
            writer.append([line])
    assert segment_names(tmp_path) == [f"{first:020d}.jsonl" for first in (0, 2, 3, 4)]
    with LogWriter.open(tmp_path, segment_bytes=10) as writer:
        assert writer.end == 5


def test_what_is_in_earlier_segments_is_synced_before_durable_passes_them(tmp_path: Path) -> None:
    disk = FakeDisk()

    async def append() -> None:
        for _ in range(4):
            writer.append([b"123456789"])
        await writer.wait_durable(writer.end)

    with LogWriter.open(tmp_path, segment_bytes=10, sync_delay_s=60, calls=disk.calls()) as writer:
        asyncio.run(append())
        assert writer.durable == 4
        assert len(disk.syncs) == len(set(disk.syncs)) == 4


def test_many_waiters_share_few_syncs(tmp_path: Path) -> None:
    disk = FakeDisk(sync_s=0.005)

    async def write(writer: LogWriter, name: int) -> None:
        for number in range(10):
            first = writer.append([f"{name}-{number}".encode(), b"second"])
            await writer.wait_durable(first + 2)
            assert writer.durable >= first + 2

    async def all_of_them(writer: LogWriter) -> None:
        await asyncio.gather(*(write(writer, name) for name in range(20)))

    with LogWriter.open(tmp_path, calls=disk.calls()) as writer:
        asyncio.run(all_of_them(writer))
        assert writer.durable == writer.end == 400
    assert 10 <= len(disk.syncs) <= 100
    written = [line for _, line in lines_of(tmp_path) if line != b"second"]
    assert sorted(written) == sorted(f"{name}-{number}".encode() for name in range(20) for number in range(10))


def test_threads_may_append_at_the_same_time(tmp_path: Path) -> None:
    def write(writer: LogWriter, name: int) -> None:
        for number in range(50):
            writer.append([f"{name}-{number}-{part}".encode() for part in range(2)])

    with LogWriter.open(tmp_path, segment_bytes=200) as writer:
        threads = [threading.Thread(target=write, args=(writer, name)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert writer.end == 400
    lines = lines_of(tmp_path)
    assert [offset for offset, _ in lines] == list(range(400))
    assert all(second == first[:-1] + b"1" for (_, first), (_, second) in zip(lines[::2], lines[1::2], strict=True))


def until(condition: Callable[[], bool]) -> bool:
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_lines_that_nobody_waits_for_are_synced_soon(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path, sync_delay_s=0.01) as writer:
        for end in (1, 2):
            writer.append([b"x"])
            assert until(lambda end=end: writer.durable == end)  # type: ignore[misc]


def test_a_cancelled_waiter_does_not_disturb_the_others(tmp_path: Path) -> None:
    disk = FakeDisk(sync_s=0.02)

    async def cancel_one(writer: LogWriter) -> None:
        first = asyncio.ensure_future(writer.wait_durable(writer.append([b"a"]) + 1))
        second = asyncio.ensure_future(writer.wait_durable(writer.append([b"b"]) + 1))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()

    with LogWriter.open(tmp_path, calls=disk.calls()) as writer:
        asyncio.run(cancel_one(writer))


def test_waiting_for_what_was_never_appended_is_refused(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path) as writer, pytest.raises(LogError, match="offset 1 was never appended"):
        asyncio.run(writer.wait_durable(1))


@pytest.mark.parametrize("tail", [b'{"half', b"x" * 3_000_000, b"\xff"], ids=["half", "long", "one byte"])
def test_a_torn_tail_is_cut_at_open(tmp_path: Path, tail: bytes) -> None:
    with LogWriter.open(tmp_path) as writer:
        writer.append([b"a", b"b"])
    segment = tmp_path / "partition-0" / f"{0:020d}.jsonl"
    segment.write_bytes(segment.read_bytes() + tail)
    with LogWriter.open(tmp_path) as writer:
        assert (writer.cut_bytes, writer.end) == (len(tail), 2)
        writer.append([b"c"])
    assert lines_of(tmp_path) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_blank_lines_keep_their_ordinal(tmp_path: Path) -> None:
    (tmp_path / "partition-0").mkdir()
    (tmp_path / "partition-0" / f"{7:020d}.jsonl").write_bytes(b"a\n\n\nb\n")
    with LogWriter.open(tmp_path) as writer:
        assert writer.end == 11


def test_a_second_writer_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path), pytest.raises(LogLocked, match="partition-0 has a writer already"):
        LogWriter.open(tmp_path)
    LogWriter.open(tmp_path).close()


def test_partitions_have_writers_of_their_own(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path) as zero, LogWriter.open(tmp_path, partition=1) as one:
        assert (zero.append([b"a"]), one.append([b"b"])) == (0, 0)
    assert [raw.line for raw in read_lines(tmp_path, partition=1)] == [b"b"]


@pytest.mark.parametrize("line", [b"", b"  ", b"a\nb", b"x" * (16 << 20)], ids=["empty", "blank", "newline", "endless"])
def test_lines_that_would_break_the_count_are_refused(tmp_path: Path, line: bytes) -> None:
    with LogWriter.open(tmp_path) as writer:
        with pytest.raises(LogError, match="a line of the log"):
            writer.append([b"good", line])
        assert writer.end == 0
    assert lines_of(tmp_path) == []


def test_a_full_disk_refuses_whole_appends_and_recovers(tmp_path: Path) -> None:
    disk = FakeDisk(room=12)
    with LogWriter.open(tmp_path, calls=disk.calls()) as writer:
        writer.append([b"first"])
        for _ in range(3):
            with pytest.raises(LogUnavailable, match="No space left on device"):
                writer.append([b"second", b"third"])
        assert writer.end == 1
        disk.room = 1000
        assert writer.append([b"fourth"]) == 1
    assert lines_of(tmp_path) == [(0, b"first"), (1, b"fourth")]


def test_a_partial_write_that_cannot_be_cut_at_once_is_cut_before_the_next(tmp_path: Path) -> None:
    disk = FakeDisk(room=8, can_truncate=False)
    with LogWriter.open(tmp_path, calls=disk.calls()) as writer:
        for _ in range(2):
            with pytest.raises(LogUnavailable):
                writer.append([b"much too long for the room"])
            disk.room = 1000
        disk.can_truncate = True
        assert writer.append([b"next"]) == 0
    assert lines_of(tmp_path) == [(0, b"next")]


def test_a_failed_rotation_refuses_and_recovers(tmp_path: Path) -> None:
    disk = FakeDisk()
    with LogWriter.open(tmp_path, segment_bytes=10, calls=disk.calls()) as writer:
        writer.append([b"12345678"])
        disk.can_create = False
        for line in (b"12345678", b"x"):
            with pytest.raises(LogUnavailable, match="No space left"):
                writer.append([line])
        disk.can_create = True
        assert writer.append([b"x"]) == 1
    assert segment_names(tmp_path) == [f"{0:020d}.jsonl", f"{1:020d}.jsonl"]
    assert lines_of(tmp_path) == [(0, b"12345678"), (1, b"x")]


def test_a_failed_sync_reaches_the_waiters_and_is_final_until_the_log_is_opened_anew(tmp_path: Path) -> None:
    disk = FakeDisk(sync_error=True)

    async def wait_for_both(writer: LogWriter) -> list[BaseException | None]:
        writer.append([b"a"])
        return list(await asyncio.gather(writer.wait_durable(1), writer.wait_durable(1), return_exceptions=True))

    writer = LogWriter.open(tmp_path, sync_delay_s=60, calls=disk.calls())
    outcomes = asyncio.run(wait_for_both(writer))
    assert [type(outcome) for outcome in outcomes] == [LogUnavailable, LogUnavailable]
    assert writer.durable == 0
    disk.sync_error = False
    with pytest.raises(LogUnavailable, match="cannot be synced"):
        writer.append([b"b"])
    with pytest.raises(LogUnavailable, match="cannot be synced"):
        writer.close()
    with LogWriter.open(tmp_path) as writer:
        assert writer.append([b"c"]) == 1


def test_a_closed_log_refuses(tmp_path: Path) -> None:
    writer = LogWriter.open(tmp_path)
    writer.append([b"a"])
    writer.close()
    writer.close()
    assert writer.durable == 1
    asyncio.run(writer.wait_durable(1))
    with pytest.raises(LogUnavailable, match="closed"):
        writer.append([b"b"])


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogError, match="file cannot hold a log"):
        LogWriter.open(tmp_path / "file")


RUN_OUT_OF_SPACE = """
import resource, sys
from pathlib import Path
from features.errors import LogUnavailable
from features.log import LogWriter
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
with LogWriter.open(Path(sys.argv[1])) as writer:
    writer.append([b"x" * 99])
    resource.setrlimit(resource.RLIMIT_FSIZE, (150, hard))
    try:
        writer.append([b"y" * 99])
    except LogUnavailable as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    print(writer.append([b"z" * 99]))
"""

WRITE_UNTIL_KILLED = """
import asyncio, sys
from pathlib import Path
from features.log import LogWriter

async def write(writer, name):
    for number in range(1_000_000):
        line = f"{name}-{number}"
        first = writer.append([line.encode()])
        await writer.wait_durable(first + 1)
        sys.stdout.write(line + "\\n")
        sys.stdout.flush()

async def main():
    writer = LogWriter.open(Path(sys.argv[1]), segment_bytes=300)
    await asyncio.gather(*(write(writer, name) for name in range(4)))

asyncio.run(main())
"""

ROOT = Path(__file__).parents[2]


def test_a_file_size_limit_of_the_system_refuses_and_recovers(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RUN_OUT_OF_SPACE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    refused, first = ran.stdout.splitlines()
    assert "File too large" in refused
    assert first == "1"
    assert lines_of(tmp_path) == [(0, b"x" * 99), (1, b"z" * 99)]


def test_after_kill_9_every_acknowledged_line_is_there_exactly_once(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITE_UNTIL_KILLED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    acknowledged = [child.stdout.readline() for _ in range(200)]
    child.send_signal(signal.SIGKILL)
    acknowledged += child.stdout.read().splitlines(keepends=True)
    child.stdout.close()
    child.wait()
    complete = [line.strip() for line in acknowledged if line.endswith(b"\n")]
    with LogWriter.open(tmp_path, segment_bytes=300) as writer:
        written = [line for _, line in lines_of(tmp_path)]
        assert writer.end == len(written)
    assert len(written) == len(set(written))
    assert len(complete) >= 200
    assert set(complete) <= set(written)
