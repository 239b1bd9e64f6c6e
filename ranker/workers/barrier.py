"""Waits until what was said is binding in every worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from ranker.workers.lease import Member


class Barrier:
    """Where an answer waits before it says that something is done.

    Args:
        members: those that there are now.
        now_ms: the machine's monotonic clock.
    """

    def __init__(self, members: Callable[[], Iterable[Member]], now_ms: Callable[[], float]) -> None:
        self._members, self._now_ms = members, now_ms
        self._moved = asyncio.Event()

    def moved(self) -> None:
        """Something was acknowledged, or somebody left."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def passed(self) -> None:
        """Returns once everything said so far is known to each follower, or its lease has ended without it."""
        now_ms = self._now_ms()
        # A beat that is sent from now on comes after what is waited for: only the last one before it counts.
        waited = [(member, member.sent, member.lease_ends_ms()) for member in self._members() if member.live(now_ms)]
        for member, count, lease_ends_ms in waited:
            await self._has(member, count, lease_ends_ms)

    async def _has(self, member: Member, count: int, lease_ends_ms: float) -> None:
        while not member.has(count) and (left_ms := lease_ends_ms - self._now_ms()) > 0.0:
            moved = self._moved
            with suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000.0 + 0.001):
                    await moved.wait()
