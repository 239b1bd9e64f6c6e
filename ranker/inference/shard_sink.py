"""Where a shard's bytes gather while they are hashed: a buffer of the right size, or a file under a temporary name."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from ranker.inference.shard_key import Shard, ShardKey

PARTIAL, WHOLE = ".partial", ".shard"


class Kept(Protocol):
    """A shard that is whole, and how to let go of it."""

    @property
    def shard(self) -> Shard:
        """What holders of a pin see."""

    def free(self) -> bool:
        """Gives the memory back; False when somebody kept a view past the pin, so that it goes when that does."""


class Sink(Protocol):
    """Takes a shard's bytes in order. Nobody but the load sees them before `keep`."""

    def write(self, chunk: memoryview) -> None:
        """Appends a chunk; never more than the size in all."""

    def content(self) -> memoryview:
        """All that was written, read-only; only after the last write."""

    def keep(self) -> Kept:
        """Makes what was written the shard."""

    def discard(self) -> None:
        """Leaves nothing behind."""


@dataclass(frozen=True, eq=False)
class _KeptBuffer:
    shard: Shard
    buffer: bytearray

    def free(self) -> bool:
        return _freed(self.shard.data, self.buffer)


class BufferSink:
    """Gathers the bytes in memory.

    Args:
        nbytes: the size that the manifest says; taken at once, so that a lack of memory shows before the load.
    """

    def __init__(self, key: ShardKey, nbytes: int) -> None:
        self._key = key
        self._buffer = bytearray(nbytes)
        self._view = memoryview(self._buffer)
        self._end = 0

    def write(self, chunk: memoryview) -> None:
        """Appends a chunk."""
        self._view[self._end : self._end + chunk.nbytes] = chunk
        self._end += chunk.nbytes

    def content(self) -> memoryview:
        """All that was written."""
        return self._view.toreadonly()

    def keep(self) -> Kept:
        """Hands the buffer over, readable only."""
        shard = Shard(self._key, self._view.toreadonly())
        self._view.release()
        return _KeptBuffer(shard, self._buffer)

    def discard(self) -> None:
        """Drops the buffer."""
        _freed(self._view, self._buffer)


@dataclass(frozen=True, eq=False)
class _KeptFile:
    shard: Shard
    mapping: mmap.mmap | None
    path: Path

    def free(self) -> bool:
        with contextlib.suppress(OSError):
            self.path.unlink()
        return _freed(self.shard.data, self.mapping)


class FileSink:
    """Gathers the bytes in a new file and maps that same open file, so what is used is what was hashed.

    A partial file that an earlier run left is deleted, never resumed.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path, key: ShardKey) -> None:
        self._key = key
        stem = _stem(key)
        self._partial, self._whole = folder / (stem + PARTIAL), folder / (stem + WHOLE)
        self._partial.unlink(missing_ok=True)
        self._file: BinaryIO = self._partial.open("x+b")
        self._mapping: mmap.mmap | None = None
        self._view: memoryview | None = None

    def write(self, chunk: memoryview) -> None:
        """Appends a chunk to the file."""
        self._file.write(chunk)

    def content(self) -> memoryview:
        """A read-only map of the file."""
        if self._view is None:
            self._file.flush()
            if self._file.tell():
                self._mapping = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._view = memoryview(self._mapping if self._mapping is not None else b"")
        return self._view

    def keep(self) -> Kept:
        """Gives the file its name."""
        shard = Shard(self._key, self.content(), self._whole)
        self._file.close()
        self._partial.replace(self._whole)
        return _KeptFile(shard, self._mapping, self._whole)

    def discard(self) -> None:
        """Deletes the file."""
        with contextlib.suppress(OSError):  # closing flushes: a full disk must not hide why the load failed
            self._file.close()
        with contextlib.suppress(OSError):
            self._partial.unlink()
        _freed(self._view, self._mapping)


class Sinks:
    """Opens a place for each shard.

    Args:
        folder: of one cache alone, swept before the first shard; in memory when None.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._swept = False

    def open(self, key: ShardKey, nbytes: int) -> Sink:
        """Room for a shard of this size.

        Raises:
            OSError, MemoryError: there is none.
        """
        if self._folder is None:
            return BufferSink(key, nbytes)
        if not self._swept:
            sweep(self._folder)
            self._swept = True
        return FileSink(self._folder, key)


def sweep(folder: Path) -> None:
    """Makes the folder and deletes what a cache that was killed left in it.

    Raises:
        OSError: the folder cannot be made or read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.suffix in (PARTIAL, WHOLE):
            path.unlink(missing_ok=True)


def _stem(key: ShardKey) -> str:
    """A file name that no two keys share and that no key can lead astray."""
    return hashlib.sha256("\n".join((key.model, key.version, key.shard)).encode("utf-8", "surrogatepass")).hexdigest()


def _freed(view: memoryview | None, memory: bytearray | mmap.mmap | None) -> bool:
    try:
        if view is not None:
            view.release()
        if isinstance(memory, bytearray):
            memory.clear()
        elif memory is not None:
            memory.close()
    except BufferError:
        return False
    return True
