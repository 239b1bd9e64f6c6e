"""Who is let in when more is asked than can be ranked.

A few requests run at once: more would only wait for each other, and make each other's reads of the store
late. Others wait outside, the earliest deadline first. Who could not be answered by his deadline is refused
at once, when he comes or when his turn comes, and nothing is done for him: under any load, what is computed
is answered in time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from ranker.clock import Clock
from ranker.errors import Overloaded
from ranker.pipeline import deadline_ms
from ranker.types import DEFAULT_BUDGETS_MS, RankRequest

AT_ONCE = 3
MOST_WAITING = 64
WAIT_SHARE = 0.5
"""Of its budget, what a request may spend waiting for its turn: the rest is for the ranking, and for the way to us and
back, which our clock does not see."""

FIRST_GUESS_MS = 1.0
LEARNED_SHARE = 0.05
"""Weight of the latest observation in how long a ranking keeps the others waiting."""
LONGEST_GAP = 8.0
"""A gap counts as so many times the usual one at most: what stalls the process says little about the next ranking."""
LEAST_EACH_MS = 0.05

READ_ONE_IN = 32
PATIENCE_SHARE = 0.02
"""Weight of the latest request in how long they are willing to wait; a more patient one counts at once."""

_Waiter = tuple[float, int, "asyncio.Future[None]"]


@dataclass
class Admission:
    """Lets requests in and out.

    Args:
        budgets_ms: by priority, for a request that does not say how long it waits.
        at_once: most that run.
        most_waiting: one more is refused before anything of it is looked at.
        refused: how many were.
    """

    clock: Clock
    budgets_ms: Mapping[str, float] = field(default_factory=lambda: DEFAULT_BUDGETS_MS)
    at_once: int = AT_ONCE
    most_waiting: int = MOST_WAITING
    refused: int = field(default=0, init=False)
    each_ms: float = field(default=FIRST_GUESS_MS, init=False)
    _running: int = field(default=0, init=False)
    _queue: list[_Waiter] = field(default_factory=list, init=False)
    _numbers: count[int] = field(default_factory=count, init=False)
    _left_ms: float | None = field(default=None, init=False)
    _patience_ms: float = field(default=0.0, init=False)
    _unread: int = field(default=0, init=False)

    def is_full(self) -> bool:
        """Whether who comes now is refused unread: too many wait, or longer than those before him would have waited.

        One in so many is read all the same: he may be more patient than they.
        """
        waiting = len(self._queue)
        if waiting >= self.most_waiting:
            return True
        if not waiting or (waiting + self._running + 1) * self.each_ms <= self._patience_ms:
            return False
        self._unread += 1
        return self._unread % READ_ONE_IN != 0

    async def enter(self, request: RankRequest, arrived_ms: float) -> None:
        """Returns when it is this request's turn; `leave` has to follow.

        Raises:
            Overloaded: it would be answered after its deadline.
        """
        if self._running < self.at_once and not self._queue:
            self._running += 1
            return
        due_ms = deadline_ms(request, arrived_ms, self.budgets_ms)
        ahead = len(self._queue) + self._running + 1
        waits_ms = WAIT_SHARE * (due_ms - arrived_ms)
        self._patience_ms = max(waits_ms, self._patience_ms + PATIENCE_SHARE * (waits_ms - self._patience_ms))
        if self.clock.monotonic_ms() + ahead * self.each_ms > arrived_ms + waits_ms:
            raise self._refusal(f"{ahead - 1} requests are ahead, each takes {self.each_ms:.1f} ms")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (due_ms, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave()  # the turn was given while its owner was leaving
            raise

    def leave(self) -> None:
        """Ends a turn and gives the next one."""
        self._running -= 1
        now_ms = self.clock.monotonic_ms()
        self._learn(now_ms)
        while self._queue and self._running < self.at_once:
            self._call_in(*heapq.heappop(self._queue)[::2], now_ms)
        self._left_ms = now_ms if self._running else None

    def _learn(self, now_ms: float) -> None:
        """From the gap between two answers with somebody running all the while.

        While others wait it is what one ranking takes; else it is at most that, so that one stall, after which
        nobody is let in to wait, is forgotten too.
        """
        if self._left_ms is None:
            return
        gap_ms = min(now_ms - self._left_ms, LONGEST_GAP * self.each_ms)
        if self._queue or gap_ms < self.each_ms:
            self.each_ms = max(LEAST_EACH_MS, self.each_ms + LEARNED_SHARE * (gap_ms - self.each_ms))

    def _call_in(self, due_ms: float, turn: asyncio.Future[None], now_ms: float) -> None:
        if turn.done():
            return
        if now_ms + (self._running + 1) * self.each_ms > due_ms:
            turn.set_exception(self._refusal("the turn came too late"))
            return
        self._running += 1
        turn.set_result(None)

    def _refusal(self, why: str) -> Overloaded:
        self.refused += 1
        return Overloaded(f"more is asked than can be ranked in time: {why}")
