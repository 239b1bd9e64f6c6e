"""Which part of a log is held back, and the rest of it as if it had just happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from features.events import COUNTED_TRAFFIC, InteractionEvent, RankingEvent, format_time
from features.log import LogWriter, read_lines, read_log
from training.errors import TrainingError

HELD_BACK = 0.2
LEAST_DAY, LARGEST_DAY = 0.03, 0.5
"""A last day with less or more than these shares of the decisions is not held back as it is."""
DAY_S = 86400.0
_BATCH_LINES = 2000


@dataclass(frozen=True)
class HeldBack:
    """From `since_s` on is held back: `decisions` of `of` in the log, which has `events` events."""

    since_s: float
    decisions: int
    of: int
    events: int


def hold_back(log: Path, *, whole_day: bool) -> HeldBack:
    """The last day of a log, or else the last fifth of its decisions.

    Raises:
        LogError: there is no such log.
        TrainingError: it has too few decisions, or all at the same time.
    """
    rankings: list[float] = []
    own: list[float] = []
    events = 0
    for _, event in read_log(log):
        events += 1
        if isinstance(event, RankingEvent) and event.items and event.traffic in COUNTED_TRAFFIC:
            rankings.append(event.time_s)
        elif isinstance(event, InteractionEvent) and event.action is not None:
            own.append(event.time_s)
    times = sorted(rankings or own)
    if len(times) < 2 or times[0] == times[-1]:
        raise TrainingError(f"{log} has {len(times)} decisions, too few to hold some of them back")
    since_s = (_last_day(times) if whole_day else None) or _last_fifth(times)
    return HeldBack(since_s, sum(time_s >= since_s for time_s in times), len(times), events)


def _last_day(times: list[float]) -> float | None:
    midnight_s = times[-1] // DAY_S * DAY_S
    while midnight_s > times[0]:
        share = sum(time_s >= midnight_s for time_s in times) / len(times)
        if share > LARGEST_DAY:
            return None
        if share >= LEAST_DAY:
            return midnight_s
        midnight_s -= DAY_S
    return None


def _last_fifth(times: list[float]) -> float:
    since_s = times[int(len(times) * (1.0 - HELD_BACK))]
    return since_s if since_s > times[0] else next(time_s for time_s in times if time_s > since_s)


def copy_history(
    log: Path,
    to: Path,
    *,
    until_s: float | None = None,
    shift_s: float = 0.0,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Writes what happened before `until_s` to a new log, `shift_s` later; gives the number of lines.

    Raises:
        LogError: the log cannot be read, or the other one not written.
    """
    lines = _shifted(log, until_s, timedelta(seconds=shift_s))
    with LogWriter.open(to) as writer:
        while batch := list(islice(lines, _BATCH_LINES)):
            writer.append(batch)
            progress(writer.end)
        return writer.end


def _shifted(log: Path, until_s: float | None, shift: timedelta) -> Iterator[bytes]:
    """Lines that are no event are left out."""
    for raw in read_lines(log):
        try:
            event = msgspec.json.decode(raw.line)
            happened = datetime.fromisoformat(event["time"])
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, KeyError, TypeError):
            continue
        if until_s is not None and happened.timestamp() >= until_s:
            continue
        if shift:
            for holder, key in _times_of(event):
                holder[key] = _later(holder[key], shift)
        yield msgspec.json.encode(event)


def _times_of(event: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Every place where an event names a time."""
    yield event, "time"
    context = event.get("context") or {}
    fields = event.get("fields") or {}
    places = [(context, "time"), *((entity, "time") for entity in context.get("entities", ()))]
    if event.get("event") == "action":
        places.append((fields, "expires"))
    yield from ((holder, key) for holder, key in places if holder.get(key))


def _later(text: str, shift: timedelta) -> str:
    return format_time(datetime.fromisoformat(text).astimezone(UTC) + shift)
