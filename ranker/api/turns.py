"""Whose turn it is: lines of batches are ranked one at a time, and when nobody waits for an answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

MAX_WAIT_S = 0.05
"""A line of a batch waits this long at most, so that a batch under steady load is slow but not stuck."""


class Turns:
    """Requests in flight, and the one line of a batch that may run.

    Args:
        max_wait_s: most a line waits for a quiet moment.
    """

    def __init__(self, max_wait_s: float = MAX_WAIT_S) -> None:
        self._max_wait_s = max_wait_s
        self._waiting = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._one = asyncio.Lock()

    def begin(self) -> None:
        """Somebody waits for an answer, until `end`."""
        self._waiting += 1
        self._quiet.clear()

    def end(self) -> None:
        """One who waited has been answered."""
        self._waiting -= 1
        if not self._waiting:
            self._quiet.set()

    @contextlib.asynccontextmanager
    async def offline(self) -> AsyncIterator[None]:
        """Within it a line of a batch is ranked, and no other."""
        async with self._one:
            await asyncio.sleep(0)  # what has arrived meanwhile goes first
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._max_wait_s):
                    await self._quiet.wait()
            yield
