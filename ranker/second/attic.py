"""Where users go who have to leave memory: a file of bounded size, in which the newest overwrite the oldest.

The file has no name, so that nobody else opens it and nothing of it outlives the process; what is in it can always be
made anew from the log. A read is one `pread` of some ten kilobytes from what this machine wrote itself.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import IO

SLOT_BYTES = 1024
"""Least that a user takes: it bounds how many there can be."""

_log = logging.getLogger(__name__)


class Attic:
    """A ring of packed users.

    Args:
        folder: on whose disk.
        max_bytes: of the file; 0 keeps nobody.

    Attributes:
        lost: users that were overwritten, did not fit, or could not be written or read.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.lost = 0
        self._folder, self._max_bytes = folder, max_bytes
        self._file: IO[bytes] | None = None
        self._closed = max_bytes == 0
        # The thread that reads a long log and the loop that closes: a descriptor must not be another file's by then.
        self._lock = Lock()
        self._head = 0
        self._slots: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, user: str) -> bool:
        return user in self._slots

    def put(self, user: str, packed: bytes) -> bool:
        """Keeps a user, in place of the oldest; whether there was a way to."""
        with self._lock:
            before = self._slots.pop(user, None)
            if before is not None:
                self._wipe(*before)
            room = _room(len(packed))
            if self._closed or room > self._max_bytes:
                self.lost += 1
                return False
            start = self._make_room(room)
            try:
                self._write(start, packed)
            except OSError as error:
                if not self.lost:
                    _log.warning("users who leave memory cannot be kept in %s: %s", self._folder, error)
                self.lost += 1
                return False
            self._slots[user] = start, len(packed)
            return True

    def take(self, user: str) -> bytes | None:
        """Gives a user back, who is in it no longer; None for one who is not there."""
        with self._lock:
            slot = self._slots.pop(user, None)
            if slot is None or self._file is None:
                return None
            try:
                packed = os.pread(self._file.fileno(), slot[1], slot[0])
            except OSError as error:
                _log.warning("a user who left memory cannot be read: %s", error)
                packed = b""
            self._wipe(*slot)
            if len(packed) == slot[1]:
                return packed
            self.lost += 1
            return None

    def forget(self, user: str) -> None:
        """Erases a user."""
        with self._lock:
            slot = self._slots.pop(user, None)
            if slot is not None:
                self._wipe(*slot)

    def close(self) -> None:
        """Lets go of the file and of all in it."""
        with self._lock:
            self._closed = True
            self._slots.clear()
            if self._file is not None:
                self._file.close()
                self._file = None

    def _make_room(self, room: int) -> int:
        """Where so many bytes may be written; whom they overwrite has left for good."""
        if self._head + room > self._max_bytes:
            self._drop(self._head, self._max_bytes)
            self._head = 0
        start, self._head = self._head, self._head + room
        self._drop(start, self._head)
        return start

    def _drop(self, start: int, stop: int) -> None:
        """Those in this part of the ring: in the order of writing they are the first."""
        while self._slots:
            user, (place, size) = next(iter(self._slots.items()))
            if not start <= place < stop:
                return
            del self._slots[user]
            self._wipe(place, size)
            self.lost += 1

    def _wipe(self, place: int, size: int) -> None:
        """No byte stays of who is not in it: who asks to be forgotten may have left before."""
        try:
            self._write(place, bytes(size))
        except OSError as error:
            _log.warning("what was kept of a user is not overwritten yet: %s", error)

    def _write(self, start: int, packed: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115  # closed by close
        done = 0
        while done < len(packed):
            done += os.pwrite(self._file.fileno(), packed[done:], start + done)


def _room(size: int) -> int:
    """Whole slots."""
    return -(-size // SLOT_BYTES) * SLOT_BYTES
