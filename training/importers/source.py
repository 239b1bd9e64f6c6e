"""What importers have in common: their role, their report, and reading lines of plain or gzip files."""

from __future__ import annotations

import gzip
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from features.errors import FeatureError
from features.events import Event
from features.log import MAX_LINE_BYTES

_GZIP_MAGIC = b"\x1f\x8b"
_KEPT_EXAMPLES = 20


class SourceError(FeatureError):
    """The source of an import cannot be used; names it."""


@dataclass
class ImportReport:
    """What an import wrote, and what it passed over and why.

    Args:
        events: number written by event type.
        skipped: number passed over by reason.
        examples: the first few of what was passed over, with file, line and detail.
        notes: numbers worth knowing that are not skips, by name.
        duplicates: events whose id had been written before.
    """

    format: str
    events: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, Any]] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0

    @property
    def total(self) -> int:
        """Number of events written."""
        return self.events.total()

    def skip(self, reason: str, source: Path, line: int, detail: str) -> None:
        """Takes note of something passed over."""
        self.skipped[reason] += 1
        if len(self.examples) < _KEPT_EXAMPLES:
            self.examples.append({"reason": reason, "file": source.name, "line": line, "detail": detail})

    def explain_skipped(self) -> str:
        """A short text for an error: the first thing that was passed over, or that there was nothing."""
        if not self.examples:
            return "it is empty"
        first = self.examples[0]
        return f"{self.skipped.total()} lines skipped, the first is line {first['line']}: {first['detail']}"

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "format": self.format,
            "events": dict(self.events),
            "total": self.total,
            "skipped": dict(self.skipped),
            "duplicates": self.duplicates,
            "notes": dict(self.notes),
            "examples": self.examples,
        }


class Importer(Protocol):
    """Reads one foreign format; what it cannot use it reports and passes over."""

    def events(self, source: Path, report: ImportReport) -> Iterator[Event]:
        """Canonical events in the order in which they shall stand in the log.

        Raises:
            SourceError: the source is missing or broken as a whole.
        """
        ...


def read_source(path: Path, report: ImportReport) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank with their number from 1; gzip is told by its first bytes.

    Raises:
        SourceError: the file is missing, a folder, or broken gzip.
    """
    try:
        with _open(path) as file:
            yield from _lines(file, path, report)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(f"{path} is broken gzip: {error}") from error
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        magic = file.read(len(_GZIP_MAGIC))
    return cast(BinaryIO, gzip.open(path, "rb")) if magic == _GZIP_MAGIC else path.open("rb")


def _lines(file: BinaryIO, path: Path, report: ImportReport) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES):
        number += 1
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            report.skip("too_long", path, number, f"the line has more than {MAX_LINE_BYTES} bytes")
            while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
        elif stripped := (line.removeprefix(BOM_UTF8) if number == 1 else line).strip():
            yield number, stripped
