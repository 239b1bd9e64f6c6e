"""Reads events in offset order: a whole log, or what is newly appended to one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from features.errors import EventError, LogError
from features.events import Event, decode_event
from features.log_cursor import LineCursor, Problem, Problems, RawLine, find_segments
from features.log_segments import segment_path

_CUT_JSON = "Input data was truncated"


def read_lines(
    logdir: Path, start: int = 0, stop: int | None = None, problems: Problems | None = None, partition: int = 0
) -> Iterator[RawLine]:
    """Complete lines with offsets in [start, stop), as they are; blank ones are passed over.

    Args:
        stop: None reads on until no complete line follows; what is appended meanwhile is read too.
        problems: takes gaps between segments and torn lines.

    Raises:
        LogError: there is no log in `logdir`, or it cannot be read.
    """
    cursor = LineCursor(logdir, start, partition, problems)
    try:
        while (raw := cursor.next_line()) is not None:
            if stop is not None and raw.offset >= stop:
                return
            yield raw
        cursor.report_torn_tail()
    finally:
        cursor.close()


def last_lines(logdir: Path, max_bytes: int, partition: int = 0) -> Iterator[bytes]:
    """Complete lines within about the last `max_bytes` of a partition, oldest first, however long the log is.

    Raises:
        LogError: there is no log in `logdir`, or it cannot be read.
    """
    folder, segments = find_segments(logdir, partition)
    parts: list[tuple[Path, int]] = []
    try:
        for path in (segment_path(folder, first) for first in reversed(segments)):
            size = path.stat().st_size
            parts.append((path, max(0, size - max_bytes)))
            max_bytes -= size
            if max_bytes <= 0:
                break
        for path, start in reversed(parts):
            yield from _lines_after(path, start)
    except OSError as error:
        raise LogError(f"{folder} cannot be read: {error.strerror or error}") from error


def _lines_after(path: Path, start: int) -> Iterator[bytes]:
    """Without the one that `start` is in the middle of, and without a torn one."""
    with path.open("rb") as file:
        if start:
            file.seek(start - 1)
            file.readline()
        yield from (line[:-1] for line in file if line.endswith(b"\n"))


def read_log(
    logdir: Path, start: int = 0, stop: int | None = None, problems: Problems | None = None, partition: int = 0
) -> Iterator[tuple[int, Event]]:
    """Events with their offsets in [start, stop); an unusable line is noted in `problems` and passed over.

    Raises:
        LogError: there is no log in `logdir`, or it cannot be read.
    """
    problems = problems if problems is not None else Problems()
    for raw in read_lines(logdir, start, stop, problems, partition):
        event = decode_line(raw, problems)
        if event is not None:
            yield raw.offset, event


def decode_line(raw: RawLine, problems: Problems) -> Event | None:
    """The event of a line, or None and a note why not."""
    try:
        return decode_event(raw.line)
    except EventError as error:
        kind = "torn_line" if error.detail == _CUT_JSON else "invalid_line"
        problems.add(Problem(kind, raw.segment.name, raw.number, raw.offset, error.detail))
        return None


class LogTail:
    """Follows a log that is being written; reads each line once.

    Args:
        start: offset of the first line wanted.

    Raises:
        LogError: there is no log in `logdir`, or it cannot be read.
    """

    def __init__(self, logdir: Path, start: int = 0, partition: int = 0) -> None:
        self.problems = Problems()
        self._start = start
        self._cursor = LineCursor(logdir, start, partition, self.problems)
        self._stop: int | None = None

    @property
    def offset(self) -> int:
        """Everything below has been read: events handed out, and blank or unusable lines passed over."""
        return max(self._cursor.offset, self._start)

    def read(self, max_events: int, stop: int | None = None) -> list[tuple[int, Event]]:
        """Events that are complete by now, with their offsets; an empty list says that nothing more is there.

        Args:
            max_events: at most this many.
            stop: only lines below this offset, such as the writer's `end` or `durable`. What lies beyond may
                be half of a write that is cut back, so it is not kept for the next call either.

        Raises:
            LogError: the log cannot be read, or lines that were read already are gone.
        """
        events: list[tuple[int, Event]] = []
        if stop != self._stop:
            self._cursor.drop_read_ahead()
            self._stop = stop
        while len(events) < max_events:
            raw = self._cursor.next_line(stop)
            if raw is None:
                break
            event = decode_line(raw, self.problems)
            if event is not None:
                events.append((raw.offset, event))
        return events

    def close(self) -> None:
        """Closes the segment that is open."""
        self._cursor.close()
