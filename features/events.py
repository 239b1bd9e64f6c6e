"""The canonical log's events: one JSON object a line, and the only way into and out of it.

Times are ISO 8601 UTC with milliseconds on disk and Unix seconds (`time_s`) in code. `offset`, the
event's ordinal in its partition, is not a field: the log gives it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar

import msgspec

from features.errors import EventError

MAX_STRING = 4096
MAX_CANDIDATES = 1000
MAX_DEPTH = 64
"""Arrays and objects inside one another in free `fields`, their own object counted."""
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
"""Integers in free `fields`: what a packed row can hold."""

T = TypeVar("T", bound=msgspec.Struct)

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_STRING)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Target = Annotated[str, msgspec.Meta(min_length=1, max_length=513)]
"""`type:id` of an entity, each of which may have 256 characters."""
Timestamp = Annotated[datetime, msgspec.Meta(tz=True)]

TRAFFIC_TYPES = ("live", "explore", "shadow", "holdout", "replay", "probe")
COUNTED_TRAFFIC = frozenset({"live", "explore", "holdout"})
"""Traffic whose lists people saw: only these move counters, history and labels."""

FEEDBACK_TYPES = ("seen", "accept", "complete", "dismiss", "undo")


class Entity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something in the context that an action can be about: `{"id": "42", "type": "image"}`."""

    id: Id
    type: Name
    time: Timestamp | None = None
    fields: dict[str, Any] = {}

    @property
    def target(self) -> str:
        """How a candidate names it: `image:42`."""
        return f"{self.type}:{self.id}"


class Trigger(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the user has just done, as the app names it."""

    type: Name
    fields: dict[str, Any] = {}


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """The situation that actions are ranked for; every field may be absent.

    `timezone` is an IANA name. `fields` are the app's own: short strings and lists of them become
    features (see features/context_keys.py).
    """

    surface: Name | None = None
    locale: Name | None = None
    region: Name | None = None
    timezone: Name | None = None
    time: Timestamp | None = None
    app_version: Name | None = None
    permissions: Annotated[list[Name], msgspec.Meta(max_length=64)] = []
    text: Text | None = None
    entities: Annotated[list[Entity], msgspec.Meta(max_length=256)] = []
    trigger: Trigger | None = None
    fields: dict[str, Any] = {}


class _Base(msgspec.Struct, frozen=True, tag_field="event", kw_only=True):
    id: Id
    time: Timestamp

    @property
    def time_s(self) -> float:
        """Unix seconds, in whole milliseconds as on disk."""
        return to_seconds(self.time)


class ActionEvent(_Base, frozen=True, tag="action", kw_only=True):
    """The catalogue's entry as of now; `fields` is an ActionSpec's JSON, null withdraws it."""

    action: Name
    fields: dict[str, Any] | None = {}


class UserEvent(_Base, frozen=True, tag="user", kw_only=True):
    """Profile fields of a user, merged into what is known; null deletes one."""

    user: Id
    fields: dict[str, Any] = {}


class InteractionEvent(_Base, frozen=True, tag="interaction", kw_only=True):
    """Something the user did by himself; `action` where it is the same thing as a catalogue action."""

    user: Id
    session: Id | None = None
    type: Name
    action: Name | None = None
    target: Target | None = None
    text: Text | None = None
    fields: dict[str, Any] = {}


class RankedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An offered candidate. `position` counts from 1; `score` and `propensity` may be unknown in imports."""

    action: Name
    target: Target | None = None
    position: Annotated[int, msgspec.Meta(ge=1, le=MAX_CANDIDATES)]
    score: float | None = None
    propensity: float | None = None


class AuditedText(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the text scorer made of a candidate: whether it let it pass, and whether people were then shown it."""

    action: Name
    target: Target | None = None
    text: Text
    score: float
    passed: bool = True
    served: bool = False


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Texts that were drawn for people to judge, and the probability that each of them had of being here."""

    probability: Annotated[float, msgspec.Meta(gt=0, le=1)]
    items: list[AuditedText] = []


class RankingEvent(_Base, frozen=True, tag="ranking", kw_only=True):
    """One decision: the list offered, and all that is needed to judge it later.

    `pool` has (action, target, score) of every candidate that reached the draw; `features` is base64 of
    little-endian float32 [pool, columns], on explore traffic only; `seen_offset` is the number of log
    events whose effect the features had read (so the state after offsets 0 … seen_offset-1).

    `withheld` has (position, action, target, score) of what was scored but removed before the draw: put back
    at their positions they give the scored set (`features.scored`), in whose company the vectors were made.
    `deleted` has rows of the pool removed after the draw: propensities are over the others. The greedy order
    is by score; `greedy` has it as rows of the pool, on explore traffic where scores are equal.
    `audit` is there where the ranking's texts were drawn for people to judge, and only there.
    """

    user: Id
    session: Id | None = None
    context: Context = Context()
    items: Annotated[list[RankedItem], msgspec.Meta(max_length=MAX_CANDIDATES)] = []
    pool: list[tuple[str, str | None, float]] | None = None
    withheld: list[tuple[Annotated[int, msgspec.Meta(ge=0)], str, str | None, float]] = []
    deleted: list[Annotated[int, msgspec.Meta(ge=0)]] = []
    greedy: list[Annotated[int, msgspec.Meta(ge=0)]] = []
    features: str | None = None
    seen_offset: Annotated[int, msgspec.Meta(ge=0)] | None = None
    traffic: str = "live"
    versions: dict[str, str] = {}
    degraded: list[str] = []
    audit: Audit | msgspec.UnsetType = msgspec.UNSET


class FeedbackEvent(_Base, frozen=True, tag="feedback", kw_only=True):
    """What followed an offer: seen, accept, complete, dismiss or undo."""

    ranking: Id
    user: Id
    type: str
    action: Name
    target: Target | None = None
    value: float | None = None


class ForgetEvent(_Base, frozen=True, tag="forget", kw_only=True):
    """From here on nothing that came before may be known about the user."""

    user: Id


Event = ActionEvent | UserEvent | InteractionEvent | RankingEvent | FeedbackEvent | ForgetEvent

_decoder = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_YEAR_STARTS_S = {1: -62_135_596_800.0, 1970: 0.0}
_YEAR_10000_S = 253_402_300_800.0


def to_seconds(time: datetime) -> float:
    """Unix seconds rounded to the millisecond that the log keeps."""
    return _milliseconds(time) / 1000.0


def from_seconds(time_s: float) -> datetime:
    """The UTC time of Unix seconds, rounded to a millisecond."""
    milliseconds = round(time_s * 1000.0)
    seconds, rest = divmod(milliseconds, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)


def format_time(time: datetime) -> str:
    """`2020-05-24T09:30:00.125Z`."""
    if time.tzinfo is not UTC or time.microsecond % 1000:
        time = from_seconds(_milliseconds(time) / 1000.0)
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _milliseconds(time: datetime) -> int:
    """Nearest whole milliseconds since 1970, in whole numbers: a float is microseconds off in far years."""
    return ((time - _EPOCH) // _MICROSECOND + 500) // 1000


def decode_event(line: bytes | str) -> Event:
    """Parses one line of the log.

    Raises:
        EventError: reason `invalid`, naming the field.
    """
    try:
        event = _decoder.decode(line)
    except RecursionError as error:
        raise EventError("invalid", f"more than {MAX_DEPTH} arrays and objects inside one another - at `$`") from error
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, ValueError) as error:
        raise EventError("invalid", str(error) or type(error).__name__) from error
    _check(event)
    return event


def encode_event(event: Event) -> bytes:
    """One line of the log, without the newline; `decode_event` gives the event back."""
    # Its few times become text, and the encoder does the rest by itself.
    if isinstance(event, RankingEvent):
        return _encoder.encode(_texted(event, context=_texted_context(event.context)))
    return _encoder.encode(_texted(event))


def _texted(value: T, **changes: Any) -> T:
    """The struct, its `time` as the log writes it, and other changes."""
    time = getattr(value, "time", None)
    return msgspec.structs.replace(value, time=time and format_time(time), **changes)


def _texted_context(context: Context) -> Context:
    """Its own time and those of its entities; free fields come from JSON, which has none."""
    if any(entity.time is not None for entity in context.entities):
        return _texted(context, entities=[_texted(entity) for entity in context.entities])
    return _texted(context) if context.time is not None else context


def _check(event: Event) -> None:
    _check_time(event.time, "$.time", 1970)
    for path, fields in _free_fields(event):
        if fields:
            _check_fields(fields, MAX_DEPTH, path)
    if isinstance(event, FeedbackEvent):
        if event.type not in FEEDBACK_TYPES:
            raise EventError("invalid", f"type {event.type!r} is not one of {', '.join(FEEDBACK_TYPES)} - at `$.type`")
        if event.value is not None and not math.isfinite(event.value):
            raise EventError("invalid", f"value {event.value} is not finite - at `$.value`")
    elif isinstance(event, RankingEvent):
        if event.traffic not in TRAFFIC_TYPES:
            known = ", ".join(TRAFFIC_TYPES)
            raise EventError("invalid", f"traffic {event.traffic!r} is not one of {known} - at `$.traffic`")
        if event.context.time is not None:
            _check_time(event.context.time, "$.context.time")
        for place, entity in enumerate(event.context.entities):
            if entity.time is not None:
                _check_time(entity.time, f"$.context.entities[{place}].time")


def writable(time: datetime, first_year: int = 1) -> bool:
    """Whether a time can be written in UTC, to the millisecond: what cannot be written cannot be logged.

    Args:
        first_year: 1970 for what happened; something in a context may be older than Unix.
    """
    return _YEAR_STARTS_S[first_year] <= to_seconds(time) < _YEAR_10000_S


def _check_time(time: datetime, path: str, first_year: int = 1) -> None:
    if not writable(time, first_year):
        raise EventError("invalid", f"time {time} is outside {first_year} to 9999 - at `{path}`")


def _free_fields(event: Event) -> Iterator[tuple[str, Any]]:
    """What may hold any JSON, with its path."""
    if isinstance(event, RankingEvent):
        context = event.context
        yield "$.context.fields", context.fields
        if context.trigger is not None:
            yield "$.context.trigger.fields", context.trigger.fields
        for place, entity in enumerate(context.entities):
            yield f"$.context.entities[{place}].fields", entity.fields
    elif isinstance(event, ActionEvent | UserEvent | InteractionEvent):
        yield "$.fields", event.fields


def _check_fields(value: Any, depth: int, path: str) -> None:
    """Deeper or larger values could be read but neither written again nor packed."""
    kind = type(value)
    if kind is int and not MIN_INTEGER <= value <= MAX_INTEGER:
        raise EventError("invalid", f"an integer of {value.bit_length()} bits does not fit in 64 - at `{path}`")
    if kind is not dict and kind is not list:
        return
    if not depth:
        raise EventError("invalid", f"more than {MAX_DEPTH} arrays and objects inside one another - at `{path[:200]}`")
    for step, inner in value.items() if kind is dict else enumerate(value):
        if type(inner) is not str:
            _check_fields(inner, depth - 1, f"{path}.{step}" if kind is dict else f"{path}[{step}]")
