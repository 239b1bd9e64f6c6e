"""Ids taken lately: the store does not know them yet, or is down just now, and the same id still counts once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from features import rows
from features.errors import EventError
from features.events import decode_event

MAX_RECENT = 100_000
LOG_BYTES = 8 << 20
"""Of the log's end, what is read at a start."""

_NOT_FROM_OUTSIDE = (b'{"event":"ranking"', b'{"event":"action"', b'{"event":"forget"')


class RecentIds:
    """Ids with the offset after their event.

    Args:
        limit: most ids held; the oldest leave.
    """

    def __init__(self, limit: int = MAX_RECENT) -> None:
        self._limit = limit
        self._ends: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def add(self, key: str, time_s: float, end: int) -> None:
        """Remembers an id."""
        self._ends[key] = time_s, end
        if len(self._ends) > self._limit:
            self._ends.popitem(last=False)

    def end_of(self, key: str, time_s: float) -> int | None:
        """The offset after the event that had the id, None when it is not remembered."""
        found = self._ends.get(key)
        return found[1] if found is not None and time_s - found[0] <= rows.ID_LIFE_S else None


def recent_ids(lines: Iterable[bytes], end: int) -> RecentIds:
    """The ids in a log's last lines: who was not answered before a crash sends them again.

    Args:
        lines: oldest first; what cannot be read is passed over.
        end: an offset after all of them.
    """
    found = RecentIds()
    for line in lines:
        if line.startswith(_NOT_FROM_OUTSIDE):
            continue
        try:
            event = decode_event(line)
        except EventError:
            continue
        found.add(rows.id_key(event), event.time_s, end)
    return found
