"""Walks a partition line by line in offset order, also while it is being written."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from features.errors import LogError
from features.log_segments import MAX_LINE_BYTES, list_segments, partition_folder, segment_path

_BUFFER_BYTES = 1 << 18


class RawLine(NamedTuple):
    """A complete line without its newline, and where it stands; `number` counts from 1 in its segment."""

    offset: int
    line: bytes
    segment: Path
    number: int


class Problem(NamedTuple):
    """Something in the log that cannot be used.

    Args:
        kind: `torn_line`, `invalid_line` or `segment_gap`.
        segment: name of the file.
        line: from 1 in that file.
    """

    kind: str
    segment: str
    line: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.segment}:{self.line}: {self.reason}"


@dataclass
class Problems:
    """Counts what a reader passed over, and keeps the first few.

    Args:
        keep: this many are kept; all are counted.
    """

    keep: int = 20
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[Problem] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        """Takes note of one more."""
        self.counts[problem.kind] += 1
        if len(self.examples) < self.keep:
            self.examples.append(problem)

    @property
    def total(self) -> int:
        """How many there were."""
        return self.counts.total()


def find_segments(logdir: Path, partition: int = 0) -> tuple[Path, list[int]]:
    """The partition's folder and the first offsets of its segments, at least one.

    Raises:
        LogError: there is no log; the message names the folder.
    """
    folder = partition_folder(logdir, partition)
    if not logdir.exists():
        raise LogError(f"{logdir} does not exist, so it is not a log")
    if not logdir.is_dir():
        raise LogError(f"{logdir} is not a folder, so it is not a log")
    try:
        segments = list_segments(folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LogError(f"{logdir} is not a log: it has no folder {folder.name}") from error
    except OSError as error:
        raise LogError(f"{folder} cannot be read: {error.strerror or error}") from error
    if not segments:
        raise LogError(f"{logdir} is an empty log: {folder.name} has no segment such as {segment_path(folder, 0).name}")
    return folder, segments


class LineCursor:
    """Reads complete lines one after the other, across segments; keeps its place between calls.

    Args:
        start: lines below this offset are passed over.
        problems: takes what is wrong with the files themselves: gaps between segments, torn or endless lines.

    Raises:
        LogError: there is no log, or it cannot be read.
    """

    def __init__(self, logdir: Path, start: int = 0, partition: int = 0, problems: Problems | None = None) -> None:
        self._folder, segments = find_segments(logdir, partition)
        self.problems = problems if problems is not None else Problems()
        self._start = start
        self._file: BinaryIO | None = None
        self._open(segments[max(bisect_right(segments, start) - 1, 0)])
        if start < self._first:
            self._report("segment_gap", f"offsets {start} to {self._first - 1} are missing before the first segment")

    def next_line(self, stop: int | None = None) -> RawLine | None:
        """The next line that is not blank, or None where no complete line follows as yet.

        Args:
            stop: lines from this offset on are not looked at.

        Raises:
            LogError: the file cannot be read, or shrank below what was read already.
        """
        try:
            while stop is None or self.offset < stop:
                line = self._read_line()
                if line is None:
                    if not self._advance():
                        return None
                elif line.strip() and self.offset > self._start:
                    return RawLine(self.offset - 1, line, self._path, self._number)
            return None
        except OSError as error:
            raise LogError(f"{self._path} cannot be read: {error.strerror or error}") from error

    @property
    def offset(self) -> int:
        """Offset of the line that comes next."""
        return self._first + self._number

    def drop_read_ahead(self) -> None:
        """Forgets bytes that were read ahead: a writer may have cut them off again and written others."""
        if self._file is not None:
            # Only a seek from the end empties the buffer.
            self._file.seek(0, os.SEEK_END)
            self._file.seek(self._position)

    def report_torn_tail(self) -> None:
        """Reports bytes after the last complete line, if any: unfinished, or still being written."""
        size = self._path.stat().st_size
        if size > self._position:
            self._report("torn_line", f"{size - self._position} bytes without a newline at the end")

    def close(self) -> None:
        """Closes the segment that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, first: int) -> None:
        self.close()
        self._path = segment_path(self._folder, first)
        try:
            self._file = self._path.open("rb", buffering=_BUFFER_BYTES)
        except OSError as error:
            raise LogError(f"{self._path} cannot be read: {error.strerror or error}") from error
        self._first, self._number, self._position = first, 0, 0
        self._successor: int | None = None

    def _read_line(self) -> bytes | None:
        """A complete line, b"" for a blank or endless one, None at the end."""
        if self._file is None:
            raise LogError(f"{self._path} was closed")
        line = self._file.readline(MAX_LINE_BYTES)
        if line.endswith(b"\n"):
            self._number, self._position = self._number + 1, self._position + len(line)
            return line[:-1]
        if len(line) == MAX_LINE_BYTES:
            return self._pass_over_endless_line(len(line))
        if line:
            self._file.seek(self._position)
        return None

    def _pass_over_endless_line(self, length: int) -> bytes | None:
        assert self._file is not None
        while part := self._file.readline(MAX_LINE_BYTES):
            length += len(part)
            if part.endswith(b"\n"):
                self._report("invalid_line", f"the line has {length} bytes, more than {MAX_LINE_BYTES}")
                self._number, self._position = self._number + 1, self._position + length
                return b""
        self._file.seek(self._position)
        return None

    def _advance(self) -> bool:
        """Whether there may be more: the rest of a segment that has a successor, or the successor itself."""
        if self._successor is None:
            segments = list_segments(self._folder)
            place = bisect_right(segments, self._first)
            if place == len(segments):
                self._check_not_cut()
                return False
            # The writer may have added lines after we saw the end and before it went on to the successor.
            self._successor = segments[place]
            return True
        self.report_torn_tail()
        successor, expected = self._successor, self.offset
        if successor != expected:
            name = segment_path(self._folder, successor).name
            self._report("segment_gap", f"{name} follows, but the next offset is {expected}")
        self._open(successor)
        return True

    def _check_not_cut(self) -> None:
        size = self._path.stat().st_size
        if size < self._position:
            raise LogError(f"{self._path} shrank to {size} bytes below the {self._position} that were read")

    def _report(self, kind: str, reason: str) -> None:
        self.problems.add(Problem(kind, self._path.name, self._number + 1, self.offset, reason))
