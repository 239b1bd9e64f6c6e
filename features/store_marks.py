"""How a store says which log its rows come from, and that they are all there.

`x:generation` is written once, when a store has been filled, and never by a batch: a server that came
back empty may take a batch, but it does not have the mark. `x:last` names the last event applied, and
how rows were made: a store that is ahead of its log, was filled from another one, or by other code, is
found out.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from types import ModuleType

import msgspec

from features import population, rows
from features.events import Event
from features.label_config import OutcomeWindows
from features.log import read_log
from features.outcomes import WINDOWS
from features.registry import FINGERPRINT
from features.store import Snapshot
from features.store_layout import MAX_TTL_S

GENERATION = "x:generation"
LAST = "x:last"
FILLING = "x:filling"
MARKS = (GENERATION, LAST)

ROWS_VERSION = 2
"""Raise it when events are credited differently: stores are then filled anew."""

ROWS = (rows.UserRow, rows.SessionRow, rows.RankingRow, rows.OfferedItem, rows.Done, rows.Token, rows.SaidText)


def state_format() -> str:
    """Names how rows come about: 16 hex digits of their fields and limits, the tables, the cells' layout."""
    parts = [str(ROWS_VERSION), FINGERPRINT]
    parts += [f"{kind.__name__} {field}: {type_}" for kind in ROWS for field, type_ in kind.__annotations__.items()]
    parts += [f"{name} = {value}" for module in (rows, population) for name, value in _limits(module)]
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


def _limits(module: ModuleType) -> list[tuple[str, int | float]]:
    numbers = ((name, value) for name, value in vars(module).items() if name.isupper())
    return sorted((name, value) for name, value in numbers if isinstance(value, int | float))


STATE_FORMAT = state_format()


def format_with(windows: OutcomeWindows) -> str:
    """The STATE_FORMAT of rows that were counted by these windows."""
    if windows == WINDOWS:
        return STATE_FORMAT
    return sha256(f"{STATE_FORMAT} {windows}".encode()).hexdigest()[:16]


class LastApplied(msgspec.Struct, frozen=True, array_like=True):
    """The last event whose effects a store holds, and the format of its rows."""

    state_format: str
    offset: int
    event_id: str


def last_applied(offset: int, event: Event, windows: OutcomeWindows = WINDOWS) -> tuple[bytes, int]:
    """The mark as a Commit wants it."""
    return msgspec.msgpack.encode(LastApplied(format_with(windows), offset, event.id)), MAX_TTL_S


def is_filled_from(snapshot: Snapshot, logdir: Path, end: int, windows: OutcomeWindows = WINDOWS) -> bool:
    """Whether a store's rows are those of the log's first `applied` events.

    Args:
        snapshot: of MARKS.
        end: number of events that the log has.
        windows: by which they must have been counted.
    """
    generation, last = snapshot.rows
    if snapshot.applied is None or generation is None or snapshot.applied > end:
        return False
    return snapshot.applied == 0 if last is None else _is_in(last, logdir, snapshot.applied, format_with(windows))


def _is_in(packed: bytes, logdir: Path, applied: int, state_format: str) -> bool:
    try:
        last = msgspec.msgpack.decode(packed, type=LastApplied)
    except msgspec.DecodeError:
        return False
    if last.state_format != state_format or last.offset >= applied:
        return False
    return any(event.id == last.event_id for _, event in read_log(logdir, last.offset, last.offset + 1))
