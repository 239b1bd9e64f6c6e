"""One writer of a partition at a time: a lock that the kernel frees however its holder ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from features.errors import LogLocked, LogUnavailable
from features.log_segments import partition_folder


def lock_partition(folder: Path) -> int:
    """Takes a partition's lock; closing the descriptor that it gives frees it.

    Raises:
        LogLocked: there is a writer.
        OSError: it cannot be taken.
    """
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise LogLocked(f"{folder} has a writer already: one at a time") from error
    except OSError:
        os.close(fd)
        raise
    return fd


@contextmanager
def held_partition(logdir: Path, partition: int = 0) -> Iterator[None]:
    """Keeps writers out of a partition that is there already, without touching its lines.

    Raises:
        LogLocked: there is a writer.
        LogUnavailable: the lock cannot be taken.
    """
    folder = partition_folder(logdir, partition)
    try:
        fd = lock_partition(folder)
    except OSError as error:
        raise LogUnavailable(f"{folder} cannot be locked: {error.strerror or error}") from error
    try:
        yield
    finally:
        os.close(fd)
