"""Packed rows of one user, one session and one ranking, and the keys they are stored under.

Every row carries the time of its last change, and a row older than its life is read as absent: the
store's own expiry is only garbage collection, so that a replay of an old log sees what was seen then.
Ids are hashed into keys: no separator in an id can reach another row, and no id is readable in the store.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from features.catalogue import MAX_OFFER_TIMES
from features.cells import CounterTable
from features.events import Event, RankingEvent
from features.lives import ID_LIFE_S as ID_LIFE_S
from features.lives import RANKING_LIFE_S as RANKING_LIFE_S
from features.lives import SESSION_LIFE_S as SESSION_LIFE_S
from features.lives import USER_LIFE_S as USER_LIFE_S

STORE_SLACK_S = 3600
"""What the store keeps a row beyond its life: clocks of events may run ahead by minutes."""

MAX_HISTORY = 50
MAX_SESSION_ACTIONS = 32
MAX_SESSION_TOKENS = 48
MAX_SESSION_TEXTS = 3
MAX_SESSIONS = 16
MAX_RANKINGS = 128
MAX_USER_ACTIONS = 128
MAX_PROFILE_FIELDS = 64
MAX_PROFILE_FIELD_BYTES = 4096


class Done(msgspec.Struct, array_like=True, order=True, frozen=True):
    """An action in a history; sorts by (time, offset)."""

    time_s: float
    offset: int
    action: str


class Token(msgspec.Struct, array_like=True, order=True, frozen=True):
    """What happened in a session, as one word (see features/tokens.py); sorts by (time, offset)."""

    time_s: float
    offset: int
    word: str


class SaidText(msgspec.Struct, array_like=True, order=True, frozen=True):
    """A text said in a session, as hashed words and pairs of words (little-endian uint32); the text is not kept."""

    time_s: float
    offset: int
    label: str
    words: bytes
    pairs: bytes


class UserRow(msgspec.Struct, array_like=True):
    """What is known about a user; `counters` holds outcomes by action."""

    updated_s: float = 0.0
    profile: dict[str, Any] = {}
    actions: list[str] = []
    cells: bytes = b""
    history: list[Done] = []
    offers: dict[str, list[float]] = {}
    sessions: dict[str, float] = {}
    rankings: list[str] = []


class SessionRow(msgspec.Struct, array_like=True):
    """What happened in a session, the most recent last."""

    updated_s: float = 0.0
    started_s: float = 0.0
    events: int = 0
    tokens: list[Token] = []
    actions: list[Done] = []
    texts: list[SaidText] = []


class OfferedItem(msgspec.Struct, array_like=True):
    """An item of a ranking and what has followed: bits of `features.outcomes`.

    Args:
        accepted_s: when it was accepted, or that was taken back: what came last.
    """

    action: str
    target: str | None
    bits: int = 0
    accepted_s: float = 0.0


class RankingRow(msgspec.Struct, array_like=True):
    """A ranking that feedback may still name, with the table keys its outcomes are credited to."""

    updated_s: float
    user: str
    session: str | None
    keys: list[str]
    items: list[OfferedItem]


class User:
    """A UserRow with its counters unpacked."""

    __slots__ = ("counters", "row")

    def __init__(self, row: UserRow | None = None) -> None:
        self.row = row if row is not None else UserRow()
        self.counters = CounterTable.from_bytes(self.row.actions, self.row.cells, MAX_USER_ACTIONS)

    @classmethod
    def unpack(cls, packed: bytes) -> User:
        """The user that `pack` packed."""
        return cls(_user_decoder.decode(packed))

    def pack(self) -> bytes:
        """One blob for the store."""
        self.row.actions, self.row.cells = self.counters.to_bytes()
        return _encoder.encode(self.row)

    def remember(self, done: Done) -> None:
        """Adds to the history, which stays in (time, offset) order and bounded."""
        insert_bounded(self.row.history, done, MAX_HISTORY)

    def offered(self, action: str, time_s: float) -> None:
        """Notes when an action was offered, for frequency caps."""
        insert_bounded(self.row.offers.setdefault(action, []), time_s, MAX_OFFER_TIMES)
        if len(self.row.offers) > MAX_USER_ACTIONS:
            del self.row.offers[min(self.row.offers, key=lambda name: (self.row.offers[name][-1], name))]

    def offers_since(self, action: str, since_s: float) -> int:
        """How often an action was offered at or after `since_s`, as far as remembered."""
        times_s = self.row.offers.get(action, ())  # in order: they were inserted so
        return len(times_s) - bisect_left(times_s, since_s)


def insert_bounded(values: list[Any], value: Any, limit: int) -> None:
    """Inserts in order and drops the earliest beyond `limit`."""
    insort(values, value)
    if len(values) > limit:
        del values[0]


_encoder = msgspec.msgpack.Encoder()
_user_decoder = msgspec.msgpack.Decoder(UserRow)
_session_decoder = msgspec.msgpack.Decoder(SessionRow)
_ranking_decoder = msgspec.msgpack.Decoder(RankingRow)


def pack(row: SessionRow | RankingRow | float) -> bytes:
    """One blob for the store."""
    return _encoder.encode(row)


def storable(name: str, value: Any) -> bool:
    """Whether a profile field can be packed in MAX_PROFILE_FIELD_BYTES: JSON knows whole numbers that no store does."""
    try:
        return len(_encoder.encode((name, value))) <= MAX_PROFILE_FIELD_BYTES
    except (OverflowError, RecursionError):
        return False


def unpack_session(packed: bytes) -> SessionRow:
    """The row that `pack` packed."""
    return _session_decoder.decode(packed)


def unpack_ranking(packed: bytes) -> RankingRow:
    """The row that `pack` packed."""
    return _ranking_decoder.decode(packed)


def unpack_time(packed: bytes) -> float:
    """The time that `pack` packed."""
    return float(msgspec.msgpack.decode(packed, type=float))


def user_key(user: str) -> str:
    """Key of a user's row."""
    return "u:" + _digest(user)


def session_key(user: str, session: str | None) -> str:
    """Key of a session's row; a session id belongs to its user, and none at all is a session of its own."""
    return "s:" + _digest(user, session or "")


def ranking_key(user: str, ranking: str) -> str:
    """Key of a ranking's row; a ranking's id belongs to its user."""
    return "r:" + _digest(user, ranking)


def id_key(event: Event) -> str:
    """Key under which an event's id is remembered; a ranking's id is scoped to its user, no other id is."""
    return "i:" + (_digest(event.user, event.id) if isinstance(event, RankingEvent) else _digest(event.id))


def life_s(key: str) -> int:
    """How long a row is believed after its last change."""
    return _LIVES_S[key[0]]


_LIVES_S = {"u": USER_LIFE_S, "s": SESSION_LIFE_S, "r": RANKING_LIFE_S, "i": ID_LIFE_S}


@lru_cache(8192)
def _digest(*parts: str) -> str:
    """A ranking asks for each of its keys several times on its way."""
    digest = blake2b(digest_size=12)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(4, "little") + encoded)
    return digest.hexdigest()
