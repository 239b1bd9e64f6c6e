"""What users did lately, kept in this process by following the log; bounded, the users seen longest ago leave.

A user who left and comes back is as one never seen before: the second stage then knows of less, and the light stage's
counters, which are in the store, still know all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from features.errors import FeatureError
from features.events import Event, ForgetEvent
from features.label_config import OutcomeWindows
from features.log import LogTail
from features.outcomes import WINDOWS
from ranker.second.happenings import Course, Courses

MAX_HAPPENINGS = 400_000
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
        max_happenings: kept of all users together, about 300 bytes each.
        forgotten: told each user who asked to be forgotten.
    """

    def __init__(
        self, logdir: Path, written: Callable[[], int], keep: int, *, windows: OutcomeWindows = WINDOWS,
        max_happenings: int = MAX_HAPPENINGS, forgotten: Callable[[str], None] = lambda _user: None,
    ) -> None:  # fmt: skip
        self.caught_up = False
        self.left = 0
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

    def __len__(self) -> int:
        return len(self._courses)

    def of(self, user: str) -> Course | None:
        """A user's course, with all that is in the log by now; None while the log is still being read."""
        if not self.caught_up or not self._follow(SMALL_CHUNK):
            return None
        course = self._courses.of(user)
        if user in self._sizes:
            self._sizes.move_to_end(user)
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
        """Closes the log."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _begin(self) -> None:
        self.caught_up = False
        self._happenings = 0
        self._courses = Courses(self._keep, self._windows)
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self.close()

    async def _catch_up(self) -> None:
        """All that is written now; the loop gets its turn after each chunk."""
        while True:
            if self.caught_up:
                done = self._follow(SMALL_CHUNK)
            else:
                # In a thread while nobody reads: the log may be long.
                done = await asyncio.to_thread(self._follow, CHUNK)
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
        user = getattr(event, "user", None)
        if not isinstance(user, str):
            return
        self._courses.apply(offset, event)
        now = len(self._courses.of(user).kept)
        self._happenings += now - self._sizes.pop(user, 0)
        if isinstance(event, ForgetEvent):
            self._forgotten(user)
        elif now:
            self._sizes[user] = now
        while self._happenings > self._max_happenings and len(self._sizes) > 1:
            oldest, size = self._sizes.popitem(last=False)
            self._courses.drop(oldest)
            self._happenings -= size
            self.left += 1
