"""What happened to a user, as the second stage reads it: from events of the log to an ordered course.

The one way from the log to a history, online and in training's replay. A course is in the order of (time, offset); a
late event is inserted where it belongs, and what it lies in then is another list, so that whoever holds the old one
still sees what was known then.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import Any

import msgspec
import numpy as np

from features import outcomes, rows
from features.events import COUNTED_TRAFFIC, Event, FeedbackEvent, ForgetEvent, InteractionEvent, RankingEvent
from features.label_config import OutcomeWindows
from features.outcomes import WINDOWS
from features.rows import OfferedItem, RankingRow
from features.situation import list_fields, scalar_fields
from features.tokens import Terms, hash_terms, words_of

OFFERED, ACCEPTED, COMPLETED, DISMISSED = "offered", "accepted", "completed", "dismissed"
FEEDBACK_KINDS = frozenset((OFFERED, ACCEPTED, COMPLETED, DISMISSED))
_KIND_OF = {"accepted": ACCEPTED, "completed": COMPLETED, "dismissed": DISMISSED, "undone": DISMISSED}

MAX_OFFERED_TERMS = 12
MAX_TERMS = 64
"""Terms kept of a happening; a model reads the first of them."""
OPEN_RANKING = 3
"""Happenings that take as much memory as a ranking with three items."""


class Happening(msgspec.Struct, array_like=True, frozen=True):
    """Something in a course.

    Args:
        part: which of several that one event of the log gives.
        kind: `offered`, `accepted`, `completed`, `dismissed`, or an interaction's type after `i:`.
        target: its type only.
        session: a hash, 0 where there is none.
        terms: CRC-32 of words and fields, little-endian uint32.
    """

    time_s: float
    offset: int
    part: int
    kind: str
    action: str | None = None
    surface: str | None = None
    target: str | None = None
    session: int = 0
    terms: bytes = b""

    @property
    def place(self) -> tuple[float, int, int]:
        """What a course is sorted by."""
        return self.time_s, self.offset, self.part


def kind_of(interaction: str) -> str:
    """The kind of an interaction's, or a trigger's, type."""
    return intern(f"i:{interaction[:64]}")


def target_type(target: str | None) -> str | None:
    """`image` of `image:42`."""
    return intern(target.partition(":")[0]) if target is not None and ":" in target else None


def session_hash(user: str, session: str | None) -> int:
    """32 bits of a session's name, 0 for none."""
    return zlib.crc32(f"{len(user)}:{user}{session}".encode("utf-8", "surrogatepass")) if session else 0


def context_terms(fields: dict[str, Any], text: str | None) -> Terms:
    """The app's fields, then the words of a text: the first are kept where there are too many."""
    named = [f"f:{word}" for word in (*scalar_fields(fields), *list_fields(fields))]
    return hash_terms([*named[:8], *(words_of(text) if text else ())])[:MAX_TERMS]


def _packed(terms: Terms) -> bytes:
    return terms.astype("<u4").tobytes()


def _text(value: Any) -> str | None:
    return intern(value) if isinstance(value, str) and value else None


def _shared(name: str | None) -> str | None:
    """The one copy of a name: histories say few of them, often."""
    return intern(name) if name is not None else None


@dataclass
class Course:
    """One user's happenings.

    Args:
        total: how many there ever were: n.
        kept: the last of them, in order. Replaced, not changed, when something is inserted before its end.
    """

    total: int = 0
    kept: list[Happening] = field(default_factory=list)
    version: int = 0

    def add(self, happening: Happening, keep: int | None) -> None:
        """Puts it where it belongs; beyond `keep` the earliest are dropped (but still counted)."""
        self.total += 1
        place = happening.place
        if not self.kept or self.kept[-1].place <= place:
            self.kept.append(happening)
        else:
            at = bisect_right(self.kept, place, key=lambda other: other.place)
            self.kept = [*self.kept[:at], happening, *self.kept[at:]]
            self.version += 1
        if keep is not None and len(self.kept) >= 2 * keep:
            self.kept = self.kept[-keep:]

    def window(self, start: int) -> tuple[list[Happening], float | None]:
        """Happenings from index `start` of all there ever were, and the time of the one before them."""
        first = len(self.kept) - (self.total - start)
        if first < 0:
            raise ValueError(f"happenings from {start} on are no longer kept: {len(self.kept)} of {self.total} are")
        return self.kept[first:], self.kept[first - 1].time_s if first else None


class Away(msgspec.Struct, array_like=True):
    """One user's course, and the rankings that feedback may still name, each with its surface, to be put elsewhere."""

    total: int
    kept: list[Happening]
    rankings: dict[str, tuple[RankingRow, str | None]]


class Courses:
    """All users' courses, fed by the events of the log in the order of offsets.

    Args:
        keep: happenings kept per user, at least the longest window + 1; None keeps all.
        windows: how long after what feedback still counts.
        most_ids: ids remembered, the latest; None: of all the events within the life of an id.
    """

    def __init__(self, keep: int | None = None, windows: OutcomeWindows = WINDOWS, most_ids: int | None = None) -> None:
        self._keep, self._windows, self._most_ids = keep, windows, most_ids
        self._courses: dict[str, Course] = {}
        self._open: dict[str, dict[str, tuple[RankingRow, str | None]]] = {}
        self._ids: dict[str, float] = {}

    def of(self, user: str) -> Course:
        """A user's course; an empty one for who was never seen."""
        return self._courses.get(user) or Course()

    def __len__(self) -> int:
        return len(self._courses)

    def size(self, user: str) -> int:
        """What is kept of a user: happenings, and rankings that feedback may still name, each as OPEN_RANKING."""
        course = self._courses.get(user)
        open_rankings = OPEN_RANKING * len(self._open.get(user, ()))
        return open_rankings + (len(course.kept) if course is not None else 0)

    def take_out(self, user: str) -> Away | None:
        """Lets go of a user, as if never seen, and gives what was kept; None where nothing was."""
        course, rankings = self._courses.pop(user, None), self._open.pop(user, None)
        if course is None:
            return None
        return Away(course.total, course.kept, rankings or {})

    def put_back(self, user: str, away: Away) -> None:
        """Takes in what `take_out` gave, though it may have been bytes meanwhile."""
        for each in away.kept:
            for name in ("kind", "action", "surface", "target"):
                msgspec.structs.force_setattr(each, name, _shared(getattr(each, name)))
        self._courses[user] = Course(away.total, away.kept)
        if away.rankings:
            self._open[user] = away.rankings

    def apply(self, offset: int, event: Event) -> int:
        """Takes one event in; gives how many happenings it was."""
        if isinstance(event, RankingEvent) and event.traffic not in COUNTED_TRAFFIC:
            return 0
        if not isinstance(event, InteractionEvent | RankingEvent | FeedbackEvent | ForgetEvent) or self._known(event):
            return 0
        if isinstance(event, ForgetEvent):
            self._courses.pop(event.user, None)
            self._open.pop(event.user, None)
            return 0
        found = self._happenings(offset, event)
        if found:
            course = self._courses.setdefault(event.user, Course())
            for happening in found:
                course.add(happening, self._keep)
        return len(found)

    def _known(self, event: Event) -> bool:
        """Whether the same event came within the life of an id; remembers it."""
        key = rows.id_key(event)
        before = self._ids.pop(key, None)
        self._ids[key] = event.time_s
        while self._ids:  # in order of arrival, so the first is the oldest or nearly so
            oldest = next(iter(self._ids))
            full = self._most_ids is not None and len(self._ids) > self._most_ids
            if event.time_s - self._ids[oldest] <= rows.ID_LIFE_S and not full:
                break
            del self._ids[oldest]
        return before is not None and event.time_s - before <= rows.ID_LIFE_S

    def _happenings(self, offset: int, event: InteractionEvent | RankingEvent | FeedbackEvent) -> Sequence[Happening]:
        if isinstance(event, InteractionEvent):
            return [_interaction(offset, event)]
        if isinstance(event, RankingEvent):
            if not event.items:
                return []
            self._open_ranking(event)
            return [_offer(offset, event)]
        return self._feedback(offset, event)

    def _open_ranking(self, event: RankingEvent) -> None:
        items = [OfferedItem(intern(item.action), item.target) for item in event.items]
        rankings = self._open.setdefault(event.user, {})
        row = RankingRow(event.time_s, event.user, event.session, [], items)
        rankings[event.id] = (row, _shared(event.context.surface))
        while len(rankings) > rows.MAX_RANKINGS or _dead(rankings, event.time_s):
            del rankings[next(iter(rankings))]

    def _feedback(self, offset: int, event: FeedbackEvent) -> Sequence[Happening]:
        found = self._open.get(event.user, {}).get(event.ranking)
        if found is None or outcomes.is_late(found[0], event, self._windows):
            return []
        row, surface = found
        settled = [each for each in outcomes.settle(row, event, self._windows) if each.kind in _KIND_OF]
        session, target = session_hash(event.user, row.session), target_type(event.target)
        return [
            Happening(event.time_s, offset, part, _KIND_OF[each.kind], _shared(each.action), surface, target, session)
            for part, each in enumerate(settled)
        ]


def _dead(rankings: dict[str, tuple[RankingRow, str | None]], now_s: float) -> bool:
    """Whether the oldest is beyond a ranking's life, as in the store."""
    return now_s - next(iter(rankings.values()))[0].updated_s > rows.RANKING_LIFE_S


def _interaction(offset: int, event: InteractionEvent) -> Happening:
    return Happening(
        event.time_s, offset, 0, kind_of(event.type), _shared(event.action), _text(event.fields.get("surface")),
        target_type(event.target), session_hash(event.user, event.session),
        _packed(context_terms(event.fields, event.text)),
    )  # fmt: skip


def _offer(offset: int, event: RankingEvent) -> Happening:
    """The list as one token: its first action, and all of them as terms."""
    shown = [f"o:{item.action}" for item in event.items[:MAX_OFFERED_TERMS]]
    first = min(event.items, key=lambda item: item.position)
    return Happening(
        event.time_s, offset, 0, OFFERED, _shared(first.action), _shared(event.context.surface),
        target_type(first.target), session_hash(event.user, event.session), _packed(hash_terms(shown)),
    )  # fmt: skip


def terms_of(happening: Happening) -> Terms:
    """Its hashed terms."""
    return np.frombuffer(happening.terms, "<u4")
