"""How a store says which log its rows come from, and that they are all there.

`x:generation` is written once, when a store has been filled, and never by a batch: a server that came
back empty may take a batch, but it does not have the mark. `x:last` names the last event applied: a
store that is ahead of its log, or was filled from another one, is found out.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from features.events import Event
from features.log import read_log
from features.store import Snapshot
from features.store_layout import MAX_TTL_S

GENERATION = "x:generation"
LAST = "x:last"
FILLING = "x:filling"
MARKS = (GENERATION, LAST)

ROWS_VERSION = 1
"""Raise it when rows are packed or credited differently: stores are then filled anew."""


class LastApplied(msgspec.Struct, frozen=True, array_like=True):
    """The last event whose effects a store holds."""

    rows_version: int
    offset: int
    event_id: str


def last_applied(offset: int, event: Event) -> tuple[bytes, int]:
    """The mark as a Commit wants it."""
    return msgspec.msgpack.encode(LastApplied(ROWS_VERSION, offset, event.id)), MAX_TTL_S


def is_filled_from(snapshot: Snapshot, logdir: Path, end: int) -> bool:
    """Whether a store's rows are those of the log's first `applied` events.

    Args:
        snapshot: of MARKS.
        end: number of durable events.
    """
    generation, last = snapshot.rows
    if snapshot.applied is None or generation is None or snapshot.applied > end:
        return False
    return snapshot.applied == 0 if last is None else _is_in(last, logdir, snapshot.applied)


def _is_in(packed: bytes, logdir: Path, applied: int) -> bool:
    try:
        last = msgspec.msgpack.decode(packed, type=LastApplied)
    except msgspec.DecodeError:
        return False
    if last.rows_version != ROWS_VERSION or last.offset >= applied:
        return False
    return any(event.id == last.event_id for _, event in read_log(logdir, last.offset, last.offset + 1))
