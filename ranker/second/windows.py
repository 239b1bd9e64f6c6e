"""Windows of users' histories as tokens, remembered so that a request encodes only what happened since."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import ReferenceType, ref

import numpy as np

from ranker.second.config import Sizes
from ranker.second.direct import window_of
from ranker.second.happenings import Course, Happening
from ranker.second.tokens import EventTokens, encode_events, event_dtype, pack_events
from ranker.second.vocabulary import Vocabulary

MAX_USERS = 4096
MAX_EVENTS = 400_000
"""Of all windows together, about 300 bytes each."""
ROOM = 16
"""Least that a window can grow before it is encoded anew, in another place."""


@dataclass(frozen=True)
class Window:
    """What is encoded of a history.

    Args:
        start: index of its first event among all of the user's.
        total: all events of the user.
        tokens: of the window; never written to again.
        packed: the bytes of each.
        last: its last happening, None where there is none.
    """

    start: int
    total: int
    tokens: EventTokens
    packed: Sequence[bytes]
    last: Happening | None


@dataclass
class _Kept:
    """A window that grows at its end, as long as there is `room`.

    Args:
        course: not kept in memory by this.
    """

    course: ReferenceType[Course]
    version: int
    window: Window
    room: EventTokens


class Windows:
    """Windows by user, for one version's vocabulary.

    Args:
        max_users, max_events: of more, the least recently asked about leave.
    """

    def __init__(
        self, vocabulary: Vocabulary, sizes: Sizes, max_users: int = MAX_USERS, max_events: int = MAX_EVENTS
    ) -> None:
        self._vocabulary, self._sizes = vocabulary, sizes
        self._max_users, self._max_events, self._events = max_users, max_events, 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, user: str, course: Course) -> Window:
        """The window of a user's course as it is now."""
        kept = self._pop(user)
        start, happenings, before_s = window_of(course, self._sizes.window)
        if kept is None or not _grew(kept, course, start):
            kept = self._encoded(course, start, happenings, before_s)
        elif kept.window.total < course.total:
            self._append(kept, course, happenings)
        self._kept[user] = kept
        self._events += len(kept.window.tokens)
        while len(self._kept) > self._max_users or (self._events > self._max_events and len(self._kept) > 1):
            self._pop(next(iter(self._kept)))
        return kept.window

    def forget(self, user: str) -> None:
        """Drops a user's window."""
        self._pop(user)

    def _pop(self, user: str) -> _Kept | None:
        kept = self._kept.pop(user, None)
        if kept is not None:
            self._events -= len(kept.window.tokens)
        return kept

    def _encoded(self, course: Course, start: int, happenings: Sequence[Happening], before_s: float | None) -> _Kept:
        room = np.zeros(min(self._sizes.window, 2 * len(happenings) + ROOM), event_dtype(self._sizes.terms))
        tokens = room[: len(happenings)]
        tokens[:] = encode_events(happenings, before_s, self._vocabulary, self._sizes)
        last = happenings[-1] if happenings else None
        return _Kept(ref(course), course.version, Window(start, course.total, tokens, pack_events(tokens), last), room)

    def _append(self, kept: _Kept, course: Course, happenings: Sequence[Happening]) -> None:
        old = len(kept.window.tokens)
        before = happenings[old - 1] if old else None
        new = encode_events(happenings[old:], before, self._vocabulary, self._sizes)
        kept.room[old : len(happenings)] = new
        packed = [*kept.window.packed, *pack_events(new)]
        kept.window = Window(kept.window.start, course.total, kept.room[: len(happenings)], packed, happenings[-1])


def _grew(kept: _Kept, course: Course, start: int) -> bool:
    """Whether what is kept is the beginning of what there is now."""
    same = kept.course() is course and kept.version == course.version and kept.window.start == start
    same = same and course.total - start <= len(kept.room)
    # a first event of a course has no session before it, which only encoding it anew says
    return same and (len(kept.window.tokens) > 0 or kept.window.total == course.total)
