"""What the keeper and a follower say to each other, as MessagePack: small structs, each checked when it is read.

The keeper's messages are one ordered stream, and a follower counts them: `Acked(7)` says that the first seven
have had their effect. Whatever binds a ranking comes before the `Beat` that lets the follower rely on it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ranker.workers.errors import FeedError

Offset = Annotated[int, Meta(ge=0)]
Cell = tuple[str, str, bytes | None]
"""Table key, action, packed cell; None where it left."""

Change = tuple[str, str, bytes | None]
"""Id of the event, action, JSON of its spec; None withdraws it."""


class Told(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the keeper says."""


class Beat(Told, frozen=True, array_like=True, tag=True):
    """The follower may rely on what it has been told until a while after `sent_ms`.

    Args:
        sent_ms: on the machine's monotonic clock, which its processes share.
        lag_ms: age of the oldest event of the log that is not yet in effect.
        end: of the log.
    """

    sent_ms: float
    lag_ms: float
    end: Offset


class TablesBegin(Told, frozen=True, array_like=True, tag=True):
    """The store holds the first `applied` events under a generation; all its population cells follow."""

    generation: str
    applied: Offset


class Cells(Told, frozen=True, array_like=True, tag=True):
    """Population cells as they are now."""

    cells: list[Cell]


class TablesWhole(Told, frozen=True, array_like=True, tag=True):
    """The cells since TablesBegin are all there are, as of an offset."""

    offset: Offset


class Sealed(Told, frozen=True, array_like=True, tag=True):
    """The cells since the last of these are what changed up to an offset."""

    offset: Offset


class Committed(Told, frozen=True, array_like=True, tag=True):
    """Events before `applied` are in the store."""

    applied: Offset


class Lost(Told, frozen=True, array_like=True, tag=True):
    """The store cannot be relied on."""


class Changed(Told, frozen=True, array_like=True, tag=True):
    """Entries of the catalogue, the last one's event at `offset`; -1 while it never had any."""

    offset: Annotated[int, Meta(ge=-1)]
    changes: list[Change]


class Wrote(Told, frozen=True, array_like=True, tag=True):
    """An event of a user was appended just below `end`."""

    user: str
    end: Offset


class Forgot(Told, frozen=True, array_like=True, tag=True):
    """A user was forgotten: no answer begun before is given again."""

    user: str
    at_s: float


class Joined(Told, frozen=True, array_like=True, tag=True):
    """The follower has all it needs to rank. `floor` is the log's end when it was subscribed."""

    floor: Offset


class Logged(Told, frozen=True, array_like=True, tag=True):
    """What became of an Append; `error` empty: it is written."""

    number: int
    error: str = ""


class Said(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a follower says."""


class Hello(Said, frozen=True, array_like=True, tag=True):
    """Which worker it is: its number, from 1."""

    worker: Annotated[int, Meta(ge=1)]
    pid: int


class Acked(Said, frozen=True, array_like=True, tag=True):
    """The first `count` messages have had their effect."""

    count: Offset


class Append(Said, frozen=True, array_like=True, tag=True):
    """A ranking's line for the log; not to be written after `until_ms`, for then it was answered as unlogged."""

    number: int
    user: str
    line: bytes
    until_ms: float


class Hurry(Said, frozen=True, array_like=True, tag=True):
    """Somebody waits for what was written to be in effect."""


class Suspect(Said, frozen=True, array_like=True, tag=True):
    """A read found the store other than expected."""


class Report(Said, frozen=True, array_like=True, tag=True):
    """Its counts since it started, packed by whoever counts."""

    counts: bytes


ToldAny = (
    Beat | TablesBegin | Cells | TablesWhole | Sealed | Committed | Lost | Changed | Wrote | Forgot | Joined | Logged
)
SaidAny = Hello | Acked | Append | Hurry | Suspect | Report

_told: msgspec.msgpack.Decoder[ToldAny] = msgspec.msgpack.Decoder(ToldAny)
_said: msgspec.msgpack.Decoder[SaidAny] = msgspec.msgpack.Decoder(SaidAny)
_encoder = msgspec.msgpack.Encoder()


def packed(message: Told | Said) -> bytes:
    """A message as bytes."""
    return _encoder.encode(message)


def told(body: bytes) -> ToldAny:
    """What the keeper said. Raises FeedError."""
    try:
        return _told.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FeedError(f"no message of the keeper: {error}") from error


def said(body: bytes) -> SaidAny:
    """What a follower said. Raises FeedError."""
    try:
        return _said.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FeedError(f"no message of a follower: {error}") from error
