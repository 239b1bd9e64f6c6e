"""Which live events come in time: neither so late that their id is forgotten, nor from the future."""

from __future__ import annotations

from features.errors import EventError
from features.events import Event, format_time

MAX_LATE_S = 7 * 86400.0
MAX_AHEAD_S = 300.0


def check_time(event: Event, now_s: float) -> None:
    """Returns for an event that a service may take at `now_s` (Unix seconds).

    Raises:
        EventError: reason `too_old` or `future`.
    """
    age_s = now_s - event.time_s
    if age_s > MAX_LATE_S:
        detail = f"time {format_time(event.time)} is {age_s:.0f} s ago, more than {MAX_LATE_S:.0f}"
        raise EventError("too_old", f"{detail} - at `$.time`")
    if age_s < -MAX_AHEAD_S:
        detail = f"time {format_time(event.time)} is {-age_s:.0f} s ahead, more than {MAX_AHEAD_S:.0f}"
        raise EventError("future", f"{detail} - at `$.time`")
