"""The rows that a batch of events needs from a store, and what it changed there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from features import rows
from features.errors import UnreadableRow
from features.events import (
    COUNTED_TRAFFIC,
    ActionEvent,
    Event,
    FeedbackEvent,
    InteractionEvent,
    RankingEvent,
)
from features.rows import RankingRow, User
from features.state import Row, RowSet, State
from features.timeliness import MAX_LATE_S

_log = logging.getLogger(__name__)

Located = tuple[int, Event]


def apply_event(state: State, offset: int, event: Event, rowset: RowSet) -> bool:
    """`state.apply`; an event that breaks it is logged and counted, and the ones after it go on."""
    try:
        return state.apply(offset, event, rowset)
    except Exception:
        _log.exception("the event %r at offset %d cannot be applied", event.id, offset)
        state.skipped["error"] += 1
        return False


def counts(event: Event) -> bool:
    """Whether an event can change any row."""
    return not isinstance(event, RankingEvent) or event.traffic in COUNTED_TRAFFIC


def ranking_keys(events: Iterable[Located]) -> list[str]:
    """Keys of the rankings that feedback names; read first, for they name the sessions."""
    named = (event for _, event in events if isinstance(event, FeedbackEvent))
    return list(dict.fromkeys(rows.ranking_key(event.user, event.ranking) for event in named))


def row_keys(events: Sequence[Located], rankings: Mapping[str, Row], new: Collection[int] = ()) -> list[str]:
    """Keys of every row that applying the events may read.

    Args:
        rankings: rows of `ranking_keys` that were found.
        new: offsets of events whose ids nothing before has: they are not looked for.
    """
    keys: dict[str, None] = {}
    sessions: dict[str, list[str | None]] = {}
    for key, row in rankings.items():
        if isinstance(row, RankingRow):
            sessions[key] = [row.session]
    for offset, event in events:
        if counts(event):
            if offset not in new:
                keys[rows.id_key(event)] = None
            keys.update(dict.fromkeys(_own_keys(event, sessions)))
    return [key for key in keys if key not in rankings]


def _own_keys(event: Event, sessions: dict[str, list[str | None]]) -> list[str]:
    if isinstance(event, ActionEvent):
        return []
    keys = [rows.user_key(event.user)]
    if isinstance(event, RankingEvent):
        sessions.setdefault(rows.ranking_key(event.user, event.id), []).append(event.session)
        return [*keys, rows.session_key(event.user, event.session)]
    if isinstance(event, FeedbackEvent):
        ranked_in = sessions.get(rows.ranking_key(event.user, event.ranking), [])
        return [*keys, *(rows.session_key(event.user, session) for session in ranked_in)]
    if isinstance(event, InteractionEvent):
        return [*keys, rows.session_key(event.user, event.session)]
    return keys


def unpack_row(key: str, packed: bytes) -> Row:
    """The row under a key.

    Raises:
        UnreadableRow: it is none.
    """
    try:
        return _UNPACKERS[key[0]](packed)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise UnreadableRow(f"the row {key} cannot be read: {error}") from error


def unpack_rows(keys: Sequence[str], packed: Sequence[bytes | None]) -> dict[str, Row]:
    """Those that were found, by key.

    Raises:
        UnreadableRow: one of them is none.
    """
    found = zip(keys, packed, strict=True)
    return {key: unpack_row(key, value) for key, value in found if value is not None}


def pack_row(row: Row) -> bytes:
    """One blob for the store."""
    return row.pack() if isinstance(row, User) else rows.pack(row)


def keep_s(key: str) -> int:
    """How long a store keeps a row: a late event still finds what was alive at its own time, as in replay."""
    return rows.life_s(key) + int(MAX_LATE_S) + rows.STORE_SLACK_S


def packed_rows(changed: Mapping[str, Row | None]) -> dict[str, tuple[bytes, int] | None]:
    """Changed rows as a Commit wants them."""
    return {key: None if row is None else (pack_row(row), keep_s(key)) for key, row in changed.items()}


_UNPACKERS: dict[str, Callable[[bytes], Row]] = {
    "u": User.unpack,
    "s": rows.unpack_session,
    "r": rows.unpack_ranking,
    "i": rows.unpack_time,
}
