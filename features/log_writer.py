"""Appends to a partition of the log: the one writer, its segments and their durability."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from features.errors import LogError, LogUnavailable
from features.log_lock import lock_partition
from features.log_segments import (
    MAX_LINE_BYTES,
    SEGMENT_BYTES,
    fsync_folder,
    list_segments,
    partition_folder,
    segment_path,
)
from features.log_sync import GroupSync
from features.recent_lines import RecentLines, Written

_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
_CHUNK_BYTES = 1 << 20


def create_segment(path: Path) -> int:
    """Opens a new segment and makes its name durable; no file stays behind when that fails.

    Raises:
        OSError: it cannot be created, or holds lines already.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        if os.fstat(fd).st_size:
            raise OSError(errno.EEXIST, f"{path} is not empty")
        fsync_folder(path.parent)
    except OSError as error:
        os.close(fd)
        if error.errno != errno.EEXIST:
            path.unlink(missing_ok=True)
        raise
    return fd


@dataclass(frozen=True)
class FileCalls:
    """The file system calls of a writer, so that a test can run out of disk."""

    write: Callable[[int, bytes], int] = os.write
    truncate: Callable[[int, int], None] = os.ftruncate
    fdatasync: Callable[[int], None] = _fdatasync
    create: Callable[[Path], int] = create_segment


class LogWriter:
    """The only writer of a partition; use `LogWriter.open`.

    `append` may be called on any thread and costs one `write`; `wait_durable` awaits the group sync.

    Args:
        cut_bytes: bytes of an unfinished last line that were cut when the log was opened.
        end: offset that the next line will have.
        recent: the lines appended last.
    """

    def __init__(self, tail: _Tail, lock_fd: int, segment_bytes: int, sync_delay_s: float, calls: FileCalls) -> None:
        self.cut_bytes = tail.cut_bytes
        self.end = tail.end
        self.recent = RecentLines()
        self._folder, self._fd, self._size = tail.folder, tail.fd, tail.size
        self._lock_fd, self._segment_bytes, self._calls = lock_fd, segment_bytes, calls
        self._lock = threading.Lock()
        self._torn = self._must_rotate = self._closed = False
        self._sync = GroupSync(tail.fd, tail.end, calls.fdatasync, sync_delay_s)

    @staticmethod
    def open(
        logdir: Path,
        partition: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
        sync_delay_s: float = 0.5,
        calls: FileCalls | None = None,
    ) -> LogWriter:
        """Opens a partition for writing, makes it where there is none, and cuts a torn tail.

        Args:
            sync_delay_s: lines that nobody waits for are synced after this time.

        Raises:
            LogLocked: there is another writer.
            LogUnavailable: the folder cannot be written.
            LogError: `logdir` is not a folder.
        """
        folder = partition_folder(logdir, partition)
        try:
            _make_folder(folder)
            lock_fd = lock_partition(folder)
            try:
                tail = _open_tail(folder)
            except BaseException:
                os.close(lock_fd)
                raise
        except (FileExistsError, NotADirectoryError) as error:
            raise LogError(f"{logdir} cannot hold a log: {error.filename} is not a folder") from error
        except OSError as error:
            raise LogUnavailable(f"{folder} cannot be written: {error.strerror or error}") from error
        return LogWriter(tail, lock_fd, segment_bytes, sync_delay_s, calls or FileCalls())

    @property
    def durable(self) -> int:
        """Everything below this offset survives a power loss."""
        return self._sync.durable

    def append(self, lines: Sequence[bytes | Written]) -> int:
        """Writes lines, all or none, and gives the first one's offset.

        Args:
            lines: encoded events without their newline; whether they are valid is the caller's concern. Who has the
                event at hand gives it too, for whoever follows the log in this process.

        Raises:
            LogUnavailable: nothing was written: no room, a broken disk, or the log is closed. After a
                failed write the next call tries again; after a failed sync only opening anew helps.
            LogError: a line is empty, too long, or contains a newline.
        """
        written = [line if isinstance(line, Written) else Written(line) for line in lines]
        block = _block([each.line for each in written])
        with self._lock:
            self._check_open()
            first = self.end
            if not block:
                return first
            try:
                self._repair()
                self._make_room(len(block))
                self._write(block)
            except OSError as error:
                raise LogUnavailable(f"{self._folder}: nothing can be appended: {error.strerror or error}") from error
            self._size += len(block)
            self.recent.add(first, written)
            self.end = first + len(written)
            self._sync.appended(self.end)
            return first

    async def wait_durable(self, offset: int) -> None:
        """Returns once everything below `offset` is durable; `end` right after an append covers that append.

        Raises:
            LogUnavailable: the sync failed, or the log was closed before.
            LogError: nothing was appended at `offset - 1` yet.
        """
        await self._sync.wait(offset)

    def close(self) -> None:
        """Syncs, ends the sync thread and lets another writer in; a second call does nothing.

        Raises:
            LogUnavailable: the last lines could not be synced.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._sync.close()
        os.close(self._lock_fd)
        if self._sync.error is not None:
            raise self._sync.error

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailable(f"{self._folder}: the log is closed")
        if self._sync.error is not None:
            raise LogUnavailable(str(self._sync.error))

    def _repair(self) -> None:
        if self._torn:
            self._calls.truncate(self._fd, self._size)
            self._torn = False

    def _make_room(self, nbytes: int) -> None:
        # Once due, a rotation stays due: a file of the next name may be left from an attempt that failed.
        self._must_rotate = self._must_rotate or 0 < self._size > self._segment_bytes - nbytes
        if self._must_rotate:
            self._fd = self._calls.create(segment_path(self._folder, self.end))
            self._size, self._must_rotate = 0, False
            self._sync.rotated(self._fd)

    def _write(self, block: bytes) -> None:
        self._torn = True
        try:
            written = self._calls.write(self._fd, block)
            while written < len(block):
                more = self._calls.write(self._fd, block[written:])
                if more == 0:
                    raise OSError(errno.EIO, "nothing was written")
                written += more
        except OSError:
            # Where cutting back fails too, the next append tries it first.
            with suppress(OSError):
                self._repair()
            raise
        self._torn = False


@dataclass(frozen=True)
class _Tail:
    folder: Path
    fd: int
    size: int
    end: int
    cut_bytes: int


def _block(lines: Sequence[bytes]) -> bytes:
    for line in lines:
        if b"\n" in line or not line.strip():
            raise LogError(f"a line of the log is neither empty nor contains a newline: {line[:80]!r}")
        if len(line) >= MAX_LINE_BYTES:
            raise LogError(f"a line of the log has less than {MAX_LINE_BYTES} bytes, this one {len(line)}")
    return b"".join([part for line in lines for part in (line, b"\n")])


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fsync_folder(folder.parent.parent)
    fsync_folder(folder.parent)


def _open_tail(folder: Path) -> _Tail:
    segments = list_segments(folder)
    if not segments:
        return _Tail(folder, create_segment(segment_path(folder, 0)), size=0, end=0, cut_bytes=0)
    for first in segments[:-1]:
        _sync_file(segment_path(folder, first))
    fd = os.open(segment_path(folder, segments[-1]), os.O_RDWR | os.O_APPEND)
    try:
        lines, size = _count_lines(fd)
        cut_bytes = os.fstat(fd).st_size - size
        if cut_bytes:
            os.ftruncate(fd, size)
        # A writer that was killed may have left what it wrote in the page cache only.
        os.fsync(fd)
    except BaseException:
        os.close(fd)
        raise
    return _Tail(folder, fd, size, segments[-1] + lines, cut_bytes)


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        _fdatasync(fd)
    finally:
        os.close(fd)


def _count_lines(fd: int) -> tuple[int, int]:
    """Number of complete lines, and of the bytes that they fill."""
    lines = filled = position = 0
    while chunk := os.pread(fd, _CHUNK_BYTES, position):
        lines += chunk.count(b"\n")
        last = chunk.rfind(b"\n")
        if last >= 0:
            filled = position + last + 1
        position += len(chunk)
    return lines, filled
