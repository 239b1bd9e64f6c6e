"""What users did lately, kept in this process by following the log; bounded, the users seen longest ago leave memory.

Who left memory is in the attic, a file, and comes back from it as if never gone when he asks or does something. Who was
overwritten there is as one never seen before: the second stage then knows of less, and the light stage's counters,
which are in the store, still know all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec

from features.errors import FeatureError
from features.events import Event, FeedbackEvent, ForgetEvent, InteractionEvent, RankingEvent
from features.label_config import OutcomeWindows
from features.log import LogTail
from features.outcomes import WINDOWS
from ranker.second.attic import Attic
from ranker.second.happenings import Away, Course, Courses

MAX_HAPPENINGS = 400_000
ATTIC_BYTES = 512 << 20
MAX_IDS = 50_000
"""Remembered to count an event once: the service's own intake refuses what comes twice, however long ago."""
CHUNK = 1000
SMALL_CHUNK = 64
PAUSE_S = 0.02
RETRY_S = 1.0

_log = logging.getLogger(__name__)


class Histories:
    """Courses of the users seen last.

    Args:
        logdir: where the log is.
        written: offset below which everything was appended whole.
        keep: happenings kept of each user, at least the longest window and one.
        max_happenings: kept in memory of all users together, about 400 bytes each; a ranking that feedback may still
            name counts as three.
        attic_bytes: of the file for users who left memory, about 100 bytes a happening; in the log's folder.
        max_ids: of events that are remembered to count each once.
        forgotten: told each user who asked to be forgotten, on the event loop.

    Attributes:
        left: users that had to leave memory, and `back` those that came back, each as often as it happened.
    """

    def __init__(
        self, logdir: Path, written: Callable[[], int], keep: int, *, windows: OutcomeWindows = WINDOWS,
        max_happenings: int = MAX_HAPPENINGS, attic_bytes: int = ATTIC_BYTES, max_ids: int = MAX_IDS,
        forgotten: Callable[[str], None] = lambda _user: None,
    ) -> None:  # fmt: skip
        self.caught_up = False
        self.left = self.back = 0
        self._lost, self._attic_bytes, self._max_ids = 0, attic_bytes, max_ids
        self._attic = Attic(logdir, 0)
        self._to_tell: list[str] = []
        self._tail: LogTail | None = None
        self._logdir, self._written, self._keep, self._windows = logdir, written, keep, windows
        self._max_happenings, self._forgotten = max_happenings, forgotten
        self._begin()

    @property
    def keep(self) -> int:
        """Happenings kept of each user."""
        return self._keep

    @property
    def happenings(self) -> int:
        """Kept of all users together."""
        return self._happenings

    @property
    def away(self) -> int:
        """Users that left memory and can come back."""
        return len(self._attic)

    @property
    def lost(self) -> int:
        """Users of whom nothing is kept any more, for want of room."""
        return self._lost + self._attic.lost

    def __len__(self) -> int:
        return len(self._courses)

    def of(self, user: str) -> Course | None:
        """A user's course, with all that is in the log by now; None while the log is still being read."""
        if not self.caught_up:
            return None
        done = self._follow(SMALL_CHUNK)
        self._tell()
        if not done:
            return None
        self._come_back(user)
        course = self._courses.of(user)
        if user in self._sizes:
            self._sizes.move_to_end(user)
            self._leave()
        return course

    async def run(self) -> None:
        """Follows the log until cancelled."""
        while True:
            try:
                await self._catch_up()
                await asyncio.sleep(PAUSE_S)
            except FeatureError as error:
                _log.warning("histories begin anew: %s", error)
                self._begin()
                await asyncio.sleep(RETRY_S)

    def close(self) -> None:
        """Closes the log, and the attic for good."""
        self._attic.close()
        self._close_log()

    def _close_log(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _begin(self) -> None:
        self.caught_up = False
        self._happenings = 0
        self._courses = Courses(self._keep, self._windows, self._max_ids)
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._lost += self._attic.lost
        self.close()
        self._attic = Attic(self._logdir, self._attic_bytes)

    async def _catch_up(self) -> None:
        """All that is written now; the loop gets its turn after each chunk."""
        while True:
            if self.caught_up:
                done = self._follow(SMALL_CHUNK)
            else:
                # In a thread while nobody reads: the log may be long.
                done = await asyncio.to_thread(self._follow, CHUNK)
            self._tell()
            if done:
                self.caught_up = True
                return
            await asyncio.sleep(0)

    def _follow(self, most: int) -> bool:
        """Takes in at most so many events; whether nothing more is written."""
        end, tail = self._written(), self._tail
        if tail is None:
            self._tail = tail = LogTail(self._logdir)
        if tail.offset < end:
            for offset, event in tail.read(most, end):
                self._take(offset, event)
        return tail.offset >= end

    def _take(self, offset: int, event: Event) -> None:
        if not isinstance(event, InteractionEvent | RankingEvent | FeedbackEvent | ForgetEvent):
            return
        user = event.user
        if isinstance(event, ForgetEvent):
            self._attic.forget(user)
            self._to_tell.append(user)
        else:
            self._come_back(user)
        self._courses.apply(offset, event)
        self._count(user)
        self._leave()

    def _count(self, user: str) -> None:
        """Notes how much is kept of a user, the last seen of all."""
        now = self._courses.size(user)
        self._happenings += now - self._sizes.pop(user, 0)
        if now:
            self._sizes[user] = now

    def _come_back(self, user: str) -> None:
        if user not in self._attic:
            return
        packed = self._attic.take(user)
        if packed is None:
            return
        try:
            away = msgspec.msgpack.decode(packed, type=Away)
        except msgspec.DecodeError as error:  # what the disk gave is not what it was given
            _log.warning("a user who left memory cannot be read: %s", error)
            self._lost += 1
            return
        self._courses.put_back(user, away)
        self._count(user)
        self.back += 1

    def _leave(self) -> None:
        """Those seen longest ago, until there is no longer too much."""
        while self._happenings > self._max_happenings and len(self._sizes) > 1:
            oldest, size = self._sizes.popitem(last=False)
            away = self._courses.take_out(oldest)
            self._happenings -= size
            self.left += 1
            if away is not None:
                self._attic.put(oldest, msgspec.msgpack.encode(away))

    def _tell(self) -> None:
        """Of users to be forgotten; on the event loop, where what is told works."""
        told, self._to_tell = self._to_tell, []
        for user in told:
            self._forgotten(user)
