"""The last lines of a log as their writer has them, so that who follows it in this process need not read them again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from features.events import Event

MAX_LINES = 4096
MAX_BYTES = 32 << 20


class Written(NamedTuple):
    """A line that was appended.

    Args:
        line: as it was written.
        event: what `decode_event` would make of it, as far as state depends on it; None where only the line is known.
        new: nothing before it in the log has its id.
    """

    line: bytes
    event: Event | None = None
    new: bool = False


class RecentLines:
    """Lines with offsets that follow each other; the first ones leave when there are too many.

    Any thread may add, any may take.

    Args:
        max_lines, max_bytes: most that is held.
    """

    def __init__(self, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> None:
        self._max_lines, self._max_bytes = max_lines, max_bytes
        self._lock = threading.Lock()
        self._held: deque[Written] = deque()
        self._first = self._bytes = 0

    def add(self, offset: int, written: Sequence[Written]) -> None:
        """Takes lines whose first one has this offset."""
        with self._lock:
            if offset != self._first + len(self._held):
                self._held.clear()
                self._first, self._bytes = offset, 0
            self._held.extend(written)
            self._bytes += sum(len(each.line) for each in written)
            while len(self._held) > self._max_lines or self._bytes > self._max_bytes:
                self._leave()

    def take(self, start: int, most: int, stop: int) -> list[Written]:
        """At most so many lines from an offset on, below `stop`; what came before them is let go.

        Empty when they are not held: the log has them.
        """
        with self._lock:
            if start < self._first:
                return []
            while self._held and self._first < start:
                self._leave()
            return list(islice(self._held, min(most, stop - start))) if self._first == start < stop else []

    def _leave(self) -> None:
        self._bytes -= len(self._held.popleft().line)
        self._first += 1
