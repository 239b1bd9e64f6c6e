"""The catalogue as the log tells it, whole at start whatever the store holds.

A snapshot beside the log saves the next start from reading it all; the log stays the only truth, so a
snapshot that does not fit it is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from features.batch import apply_event
from features.catalogue import ActionSpec, Catalogue
from features.errors import EventError
from features.events import ActionEvent, decode_event
from features.log import read_lines, read_log
from features.state import RowSet, State

SNAPSHOT = "catalogue.json"
SAVE_AFTER_LINES = 20_000
"""A scan shorter than this is not worth a snapshot."""

_CANONICAL = b'{"event":"'
_ACTION = b'{"event":"action"'


class _Snapshot(msgspec.Struct, frozen=True):
    scanned: int
    changed: int
    last_id: str
    actions: dict[str, ActionSpec]


@dataclass
class LiveCatalogue:
    """The catalogue that requests see, which is ahead of the store by what was just put.

    Args:
        changed: offset after the last `action` event taken over.
        scanned: everything below this offset has been looked at.
        last_id: id of the last `action` event.
        read_lines: how many lines were read to load it.
    """

    catalogue: Catalogue = field(default_factory=Catalogue)
    changed: int = 0
    scanned: int = 0
    last_id: str = ""
    read_lines: int = 0

    def apply(self, offset: int, event: ActionEvent) -> None:
        """Takes over an event that was appended at `offset`.

        Raises:
            EventError: reason `invalid` or `catalogue_full`.
        """
        self.catalogue.apply(event)
        self._follow(offset, event.id)

    def put(self, offset: int, id: str, action: str, spec: ActionSpec | None) -> None:
        """Takes over an entry, or its withdrawal, whose event was appended at `offset` under `id`.

        Raises:
            EventError: reason `catalogue_full`.
        """
        if spec is None:
            self.catalogue.remove(action)
        else:
            self.catalogue.put(action, spec)
        self._follow(offset, id)

    def _follow(self, offset: int, id: str) -> None:
        self.changed = self.scanned = offset + 1
        self.last_id = id


def load_catalogue(logdir: Path, end: int) -> LiveCatalogue:
    """The catalogue after the log's first `end` lines.

    Raises:
        LogError: the log cannot be read.
    """
    live = _from_snapshot(logdir, end) or LiveCatalogue()
    state, rowset = State(catalogue=live.catalogue), RowSet()
    for offset, event in _action_events(logdir, live, end):
        if apply_event(state, offset, event, rowset):
            live.changed, live.last_id = offset + 1, event.id
    live.scanned = end
    return live


def save_catalogue(logdir: Path, live: LiveCatalogue) -> None:
    """Writes the snapshot, whole or not at all.

    Raises:
        OSError: it cannot be written; the next start reads the log instead.
    """
    content = msgspec.json.encode(
        _Snapshot(live.scanned, live.changed, live.last_id, dict(live.catalogue.items())),
    )
    unfinished = logdir / f".{SNAPSHOT}.{os.getpid()}"
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(logdir / SNAPSHOT)
    finally:
        unfinished.unlink(missing_ok=True)


def _from_snapshot(logdir: Path, end: int) -> LiveCatalogue | None:
    try:
        snapshot = msgspec.json.decode((logdir / SNAPSHOT).read_bytes(), type=_Snapshot)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not 0 < snapshot.changed <= snapshot.scanned <= end:
        return None
    told = [event.id for _, event in read_log(logdir, snapshot.changed - 1, snapshot.changed)]
    if told != [snapshot.last_id]:
        return None
    return LiveCatalogue(Catalogue(snapshot.actions), snapshot.changed, snapshot.scanned, snapshot.last_id)


def _action_events(logdir: Path, live: LiveCatalogue, end: int) -> Iterator[tuple[int, ActionEvent]]:
    if live.scanned >= end:
        return
    for raw in read_lines(logdir, live.scanned, end):
        live.read_lines += 1
        # Lines of another writer may have their fields in another order: those are decoded to see.
        if raw.line.startswith(_CANONICAL) and not raw.line.startswith(_ACTION):
            continue
        try:
            event = decode_event(raw.line)
        except EventError:
            continue
        if isinstance(event, ActionEvent):
            yield raw.offset, event
