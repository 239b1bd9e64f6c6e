"""Whose events are written but not yet in effect: what was acknowledged binds the next ranking of this process.

A user's last offset is remembered until the store has passed it. For everybody who is not remembered the
floor stands: the highest offset that was forgotten again. In the usual run the store is past it; when the
store falls back behind it, or more users wait than are remembered, nobody's rows count until it caught up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

MAX_USERS = 10_000


class Following(Protocol):
    """What follows the log: the applier."""

    @property
    def generation(self) -> str | None:
        """None while the store cannot be relied on."""
        ...

    @property
    def applied(self) -> int:
        """Number of log events in effect."""
        ...

    def notify(self) -> None:
        """Says that there is more, and somebody waits for it."""
        ...

    async def wait_applied(self, offset: int, timeout_s: float) -> bool:
        """Whether everything below `offset` came to be in effect within the time."""
        ...


@dataclass
class OwnWrites:
    """The end in the log of what was last written of each user, while it waits to be in effect.

    Args:
        floor: offset for everybody who is not remembered; at start the end of the log.
        max_users: so many are remembered.
        on_wrote: is told too, for other processes.
    """

    applier: Following
    floor: int = 0
    max_users: int = MAX_USERS
    on_wrote: Callable[[str, int], None] | None = None
    _ends: OrderedDict[str, int] = field(default_factory=OrderedDict, repr=False)

    def wrote(self, user: str, end: int) -> None:
        """Says that an event of a user was appended just below `end`; ends never go back."""
        if self.on_wrote is not None:
            self.on_wrote(user, end)
        self._ends[user] = end
        self._ends.move_to_end(user)
        applied = self.applier.applied
        while self._ends:
            oldest, end = next(iter(self._ends.items()))
            if end > applied and len(self._ends) <= self.max_users:
                return
            self.floor = max(self.floor, end)
            del self._ends[oldest]

    def needed(self, user: str) -> int:
        """The offset that the store must have reached for the user's rows to be whole."""
        return max(self.floor, self._ends.get(user, 0))

    def hurry(self) -> None:
        """Says that somebody will wait for what was written."""
        self.applier.notify()

    async def passed(self, offset: int, timeout_s: float) -> bool:
        """Whether everything below `offset` came to be in effect within the time; at once while nothing can."""
        if self.applier.generation is None:
            return False
        if self.applier.applied >= offset:
            return True
        self.applier.notify()
        return await self.applier.wait_applied(offset, timeout_s)

    async def caught_up(self, user: str, timeout_ms: float) -> int:
        """Waits for what was written of a user before; gives the offset that this needs, reached or not."""
        needed = self.needed(user)
        await self.passed(needed, timeout_ms / 1000.0)
        return needed
