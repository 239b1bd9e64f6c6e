"""Importers turn foreign records into a canonical log: one file a format, one table of them all.

`import_log` is the way in. An import deduplicates ids fully, and leaves a whole log or none. It streams: beside what an
importer must hold of its format (star its dialogues, sequences the names of items), only ids stay, 8 to 16 bytes each.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import compress, islice
from pathlib import Path

from features.errors import LogError
from features.events import Event, encode_event
from features.log import LogWriter
from features.log_segments import fsync_folder
from training.identity import identity
from training.importers.id_runs import IdRuns
from training.importers.jsonl import JsonlImporter
from training.importers.open_bandit import OpenBanditImporter
from training.importers.sequences import SequencesImporter
from training.importers.source import Importer, ImportReport, SourceError
from training.importers.star import StarImporter

__all__ = ["IMPORTERS", "ImportReport", "Importer", "SourceError", "import_log"]

IMPORTERS: Mapping[str, Importer] = {
    "star": StarImporter(),
    "sequences": SequencesImporter(),
    "jsonl": JsonlImporter(),
    "open-bandit": OpenBanditImporter(),
}

_BATCH_EVENTS = 1000


def import_log(format: str, source: Path, logdir: Path, progress: Callable[[int], None] | None = None) -> ImportReport:
    """Writes a new log from `source`.

    Args:
        format: a key of IMPORTERS.
        source: a file, plain or gzip (`jsonl` takes a folder too, `open-bandit` one campaign's).
        logdir: must not exist, or be an empty folder; it appears when the import is complete.
        progress: called now and then with the number of events written so far.

    Raises:
        SourceError: the format is unknown, or the source is missing, broken or without a usable line.
        LogError: `logdir` is taken or cannot be written.
    """
    importer = _find_importer(format)
    if not source.exists():
        raise SourceError(f"{source} does not exist")
    _refuse_taken(logdir)
    report = ImportReport(format)
    try:
        logdir.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=logdir.parent, prefix=f".{logdir.name}.import-") as folder:
            unfinished = Path(folder) / "log"
            with LogWriter.open(unfinished) as writer:
                _copy(importer.events(source, report), writer, report, progress)
            if not report.total:
                raise SourceError(f"{source} has nothing that format {format} can use: {report.explain_skipped()}")
            unfinished.rename(logdir)
            fsync_folder(logdir.parent)
    except OSError as error:
        raise LogError(f"{logdir} cannot be written: {error.strerror or error}") from error
    return report


def _find_importer(format: str) -> Importer:
    importer = IMPORTERS.get(format)
    if importer is None:
        nearest = difflib.get_close_matches(format, IMPORTERS, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise SourceError(f"format {format!r} is not one of {', '.join(IMPORTERS)}{hint}")
    return importer


def _refuse_taken(logdir: Path) -> None:
    if logdir.is_dir():
        if any(logdir.iterdir()):
            raise LogError(f"{logdir} is not empty: an import makes a new log")
    elif logdir.exists():
        raise LogError(f"{logdir} exists and is not a folder")


def _copy(
    events: Iterator[Event], writer: LogWriter, report: ImportReport, progress: Callable[[int], None] | None
) -> None:
    known = IdRuns()
    while batch := list(islice(events, _BATCH_EVENTS)):
        fresh = list(compress(batch, known.add([identity(event) for event in batch])))
        report.duplicates += len(batch) - len(fresh)
        report.events.update(str(event.__struct_config__.tag) for event in fresh)
        writer.append([encode_event(event) for event in fresh])
        if progress is not None:
            progress(writer.end)
