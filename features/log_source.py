"""What comes next in a log: from its writer while that has it, else from the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from features.batch import Located
from features.errors import EventError
from features.events import Event, decode_event
from features.log_reader import LogTail
from features.recent_lines import RecentLines, Written


@dataclass(frozen=True)
class Batch:
    """Events that follow each other, unusable lines left out.

    Args:
        offset: after the last line.
        new: offsets of events whose ids nothing before has.
    """

    events: Sequence[Located]
    offset: int
    new: frozenset[int] = frozenset()


class LogSource:
    """Reads each line once, in order.

    Args:
        start: offset of the first line wanted.
        recent: of the writer; None where it is another process.

    Raises:
        LogError: there is no log in `logdir`, or it cannot be read.
    """

    def __init__(self, logdir: Path, start: int, recent: RecentLines | None) -> None:
        self._logdir, self._offset, self._recent = logdir, start, recent
        self._tail: LogTail | None = None if recent is not None else LogTail(logdir, start)

    def read(self, most: int, stop: int) -> Batch:
        """At most so many lines, below `stop`.

        Raises:
            LogError: the log cannot be read.
        """
        recent = self._recent.take(self._offset, most, stop) if self._recent is not None else ()
        batch = _batch(self._offset, recent) if recent else self._from_files(most, stop)
        self._offset = batch.offset
        return batch

    def close(self) -> None:
        """Closes the segment that is open."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _from_files(self, most: int, stop: int) -> Batch:
        if self._offset >= stop:
            return Batch((), self._offset)
        if self._tail is None or self._tail.offset != self._offset:
            self.close()
            self._tail = LogTail(self._logdir, self._offset)
        return Batch(self._tail.read(most, stop), self._tail.offset)


def _batch(start: int, lines: Sequence[Written]) -> Batch:
    found = ((offset, written.event or _decoded(written.line)) for offset, written in enumerate(lines, start))
    new = frozenset(offset for offset, written in enumerate(lines, start) if written.new)
    return Batch([(offset, event) for offset, event in found if event is not None], start + len(lines), new)


def _decoded(line: bytes) -> Event | None:
    try:
        return decode_event(line)
    except EventError:
        return None
