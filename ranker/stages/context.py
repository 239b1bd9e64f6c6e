"""context: what is known about the user, the session and everyone, read once for the whole request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from features.errors import StoreTimeout
from features.known import Known
from features.population import Population, PopulationView
from ranker.clock import Clock
from ranker.degraded import Degraded
from ranker.types import Ranking, RankRequest

STORE_TIMEOUT_MS = 15.0
BUDGET_SHARE = 0.5
"""Of what is left of the caller's budget, what the read may take: the other stages need some too."""

CATCH_UP_MS, CATCH_UP_SHARE = 20.0, 0.25
"""Most time, and share of what is left of the budget, to wait for the user's own last events."""

GUARD_MS = 5.0
"""How much longer than it was allowed a reader is waited for before it is left alone."""


class KnowledgeReader(Protocol):
    """Reads what is known; has its own time-out and circuit."""

    async def read(self, request: RankRequest, now_s: float, timeout_ms: float) -> tuple[Known, tuple[Degraded, ...]]:
        """What is known within `timeout_ms`, with what went wrong: personal rows are absent then, tables are not.

        A user never seen is not a failure.

        Args:
            now_s: the ranking's own time in Unix seconds, which the log keeps: rows older than their life by
                it are absent, here as in replay.
        """
        ...


def _no_tables() -> PopulationView:
    return Population().at()


async def _nothing_written(_user: str, _timeout_ms: float) -> int:
    return 0


@dataclass(frozen=True)
class Context:
    """Fills `known`. Rows that lack what was written of the user before count as unknown.

    Args:
        caught_up: waits up to some ms for what was written of a user; gives the offset that has it all.
        timeout_ms: most time for the read.
        tables: population tables of this process, for when there is no time to read, or the reader fails.
    """

    reader: KnowledgeReader
    clock: Clock
    timeout_ms: float = STORE_TIMEOUT_MS
    tables: Callable[[], PopulationView] = _no_tables
    caught_up: Callable[[str, float], Awaitable[int]] = _nothing_written
    name: str = "context"

    async def run(self, ranking: Ranking) -> Ranking:
        """Reads, within the smaller of the store's time-out and a share of what is left of the budget."""
        left_ms = ranking.deadline_ms - self.clock.monotonic_ms()
        needed = await self.caught_up(ranking.request.user, max(0.0, min(CATCH_UP_MS, CATCH_UP_SHARE * left_ms)))
        left_ms = ranking.deadline_ms - self.clock.monotonic_ms()
        timeout_ms = max(0.0, min(self.timeout_ms, BUDGET_SHARE * left_ms))
        async with asyncio.timeout(min(timeout_ms + GUARD_MS, left_ms) / 1000.0):
            known, degraded = await self.reader.read(ranking.request, ranking.now_s, timeout_ms)
        if known.seen_offset is not None and known.seen_offset < needed:
            known, degraded = Known(known.population), (*degraded, Degraded.FEATURES_STALE)
        return ranking.but(known=known).because(*degraded)

    def late(self, ranking: Ranking) -> Ranking:
        """No time for I/O: context features, and priors for the rest."""
        return self._without_rows(ranking, Degraded.FEATURES_TIMEOUT)

    def recover(self, ranking: Ranking, error: Exception) -> Ranking:
        """The reader failed in a way it should not have."""
        slow = isinstance(error, TimeoutError | StoreTimeout)
        return self._without_rows(ranking, Degraded.FEATURES_TIMEOUT if slow else Degraded.FEATURES_UNAVAILABLE)

    def _without_rows(self, ranking: Ranking, reason: Degraded) -> Ranking:
        return ranking.but(known=Known(self.tables())).because(reason)
