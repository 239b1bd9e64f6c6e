"""Canonical event lines from a file, a folder of `*.jsonl` files, or a log folder; their order is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from features.errors import EventError
from features.events import Event, decode_event
from features.log import partition_folder
from training.importers.source import ImportReport, SourceError, read_source


class JsonlImporter:
    """Takes over what is canonical already; an invalid line is counted and named."""

    def events(self, source: Path, report: ImportReport) -> Iterator[Event]:
        """Events of all files, which are read in the order of their names.

        Raises:
            SourceError: the source is missing, broken gzip, or a folder without `*.jsonl` files.
        """
        for path in _files(source):
            for number, line in read_source(path, report):
                try:
                    yield decode_event(line)
                except EventError as error:
                    report.skip(error.reason, path, number, error.detail)


def _files(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    for folder in (source, partition_folder(source)):
        files = sorted(path for pattern in ("*.jsonl", "*.jsonl.gz") for path in folder.glob(pattern))
        if files:
            return files
    raise SourceError(f"{source} has no *.jsonl files")
