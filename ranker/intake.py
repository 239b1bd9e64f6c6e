"""Takes events from outside into the log: each accepted, a duplicate, or refused with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from features import rows
from features.batch import unpack_row
from features.errors import EventError, LogError, LogUnavailable, StoreError, UnreadableRow
from features.events import Event, FeedbackEvent, InteractionEvent, UserEvent, decode_event, encode_event
from features.log import MAX_LINE_BYTES, LogWriter, Written
from features.store import FeatureStore
from features.timeliness import check_time
from ranker.answers import EventAnswer
from ranker.errors import ServiceUnavailable
from ranker.own_writes import OwnWrites
from ranker.recent_ids import RecentIds

LOOK_UP_MS = 100.0
SLICE_EVENTS = 64
"""Of a large post so many are read at a time; in between, rankings go on."""
IN_EFFECT_S = 0.05
"""So long an answer waits for durable events to be in effect; they are acknowledged all the same after it."""
_ELSEWHERE = {
    "action": "actions are put with PUT /v1/actions",
    "forget": "a user is forgotten with DELETE /v1/users/{user}",
    "ranking": "rankings are written by the service itself",
}
_OPEN_TYPES = (InteractionEvent, FeedbackEvent, UserEvent)


class _Peek(msgspec.Struct):
    event: str | None = None
    id: str | None = None


@dataclass
class _Arrival:
    """An event on its way in; `answer` once it is decided, `encoded` as the log gets it."""

    line: bytes
    event: Event | None = None
    encoded: bytes = b""
    answer: EventAnswer | None = None

    def refuse(self, reason: str, detail: str) -> None:
        self.answer = EventAnswer(_id_of(self.line), "refused", reason, detail)


@dataclass
class Intake:
    """The way in.

    Args:
        now_s: Unix seconds, for what is too old or in the future.
        own: is told whose events were written, and waits for them.
        recent: ids that may not be in the store yet, those that the log ended with at start included.
    """

    log: LogWriter
    store: FeatureStore
    now_s: Callable[[], float]
    own: OwnWrites
    recent: RecentIds = field(default_factory=RecentIds)

    async def take(self, lines: Sequence[bytes]) -> list[EventAnswer]:
        """One answer per event, in order; those accepted are durable, and in effect unless that takes long.

        Raises:
            ServiceUnavailable: the log cannot be written; nothing was acknowledged.
        """
        arrivals: list[_Arrival] = []
        known, answers = set[str](), True
        for start in range(0, len(lines), SLICE_EVENTS):
            some = [self._checked(line) for line in lines[start : start + SLICE_EVENTS]]
            arrivals += some
            if answers:  # a store that does not answer is not waited for again and again
                found = await self._known_to_store([arrival.event for arrival in _open(some) if arrival.event])
                known, answers = known | (found or set()), found is not None
            else:
                await asyncio.sleep(0)
        end = self._append(arrivals, known)
        await durable(self.log, end)
        await self.own.passed(end, IN_EFFECT_S)
        return [arrival.answer for arrival in arrivals if arrival.answer is not None]

    def _checked(self, line: bytes) -> _Arrival:
        arrival = _Arrival(line)
        try:
            kind = _kind_of(line)
            if kind in _ELSEWHERE:
                raise EventError("not_allowed", f"event {kind!r} is not taken here: {_ELSEWHERE[kind]} - at `$.event`")
            event = decode_event(line)
            check_time(event, self.now_s())
            assert isinstance(event, _OPEN_TYPES)
            arrival.event, arrival.encoded = event, encode_event(event)
            if len(arrival.encoded) >= MAX_LINE_BYTES:
                size = len(arrival.encoded)
                raise EventError("too_large", f"the event has {size} bytes, the log takes {MAX_LINE_BYTES - 1}")
        except EventError as error:
            arrival.refuse(error.reason, error.detail)
        return arrival

    async def _known_to_store(self, events: Sequence[Event]) -> set[str] | None:
        """Keys of ids that were applied already; None when the store does not answer: applying drops them too."""
        keys = list(dict.fromkeys(rows.id_key(event) for event in events))
        if not keys:
            return set()
        try:
            snapshot = await self.store.read(keys, LOOK_UP_MS)
        except StoreError:
            return None
        times = {key: _time_of(key, packed) for key, packed in zip(keys, snapshot.rows, strict=True)}
        return {rows.id_key(event) for event in events if event.time_s - times[rows.id_key(event)] <= rows.ID_LIFE_S}

    def _append(self, arrivals: Sequence[_Arrival], known: set[str]) -> int:
        """Decides and writes without a pause in between, so that of two the same one counts; the end to wait for."""
        wait_for, fresh = 0, dict[str, tuple[_Arrival, bytes]]()
        for arrival in _open(arrivals):
            assert arrival.event is not None
            key = rows.id_key(arrival.event)
            end = self.recent.end_of(key, arrival.event.time_s)
            if key in known or key in fresh or end is not None:
                arrival.answer = EventAnswer(arrival.event.id, "duplicate")
                wait_for = max(wait_for, end or 0)
                continue
            arrival.answer = EventAnswer(arrival.event.id, "accepted")
            fresh[key] = arrival, arrival.encoded
        first = append(self.log, [Written(line, arrival.event) for arrival, line in fresh.values()])
        for place, (key, (arrival, _)) in enumerate(fresh.items(), 1):
            assert isinstance(arrival.event, _OPEN_TYPES)
            self.recent.add(key, arrival.event.time_s, first + place)
            self.own.wrote(arrival.event.user, first + place)
        if fresh:
            self.own.hurry()
        return max(wait_for, first + len(fresh) if fresh else 0)


def append(log: LogWriter, lines: Sequence[bytes | Written]) -> int:
    """Appends and gives the first offset.

    Raises:
        ServiceUnavailable: nothing was written.
    """
    try:
        return log.append(lines)
    except LogError as error:
        raise ServiceUnavailable(f"the log cannot be written: {error}") from error


async def durable(log: LogWriter, end: int) -> None:
    """Returns once everything below `end` is durable.

    Raises:
        ServiceUnavailable: it cannot be made durable.
    """
    try:
        await log.wait_durable(end)
    except LogUnavailable as error:
        raise ServiceUnavailable(f"the log cannot be made durable: {error}") from error


def _open(arrivals: Sequence[_Arrival]) -> Iterator[_Arrival]:
    return (arrival for arrival in arrivals if arrival.answer is None)


def _kind_of(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=_Peek).event
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _id_of(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=_Peek).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _time_of(key: str, packed: bytes | None) -> float:
    """When a remembered id was, long ago when it is not."""
    if packed is None:
        return float("-inf")
    try:
        row = unpack_row(key, packed)
    except UnreadableRow:
        return float("-inf")
    assert isinstance(row, float)
    return row
