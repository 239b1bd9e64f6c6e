"""Files that are on disk, whole, before anyone can see them under their name."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_new(path: Path, content: bytes) -> None:
    """Creates a file and syncs its content.

    Raises:
        FileExistsError: the file is there already.
    """
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_atomically(path: Path, content: bytes) -> None:
    """Sets a file's content: a reader sees all of the old or all of the new. One writer at a time."""
    sibling = path.with_name(f".{path.name}.new")
    sibling.unlink(missing_ok=True)
    write_new(sibling, content)
    sibling.replace(path)
    sync_folder(path.parent)


def read_plain(path: Path, limit: int) -> bytes:
    """The content of a regular file, never through a symbolic link.

    Raises:
        OSError: it is not there, cannot be read, or is a symbolic link.
        ValueError: it is not a regular file, or has more than `limit` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a regular file")
        if status.st_size > limit:
            raise ValueError(f"has {status.st_size} bytes, more than {limit}")
        return file.read(limit + 1)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock among processes and threads; the kernel frees it however the holder ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
