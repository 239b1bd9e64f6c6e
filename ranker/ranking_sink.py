"""The role of what keeps rankings where this process is not the log's writer."""

from __future__ import annotations

from typing import Protocol


class RankingSink(Protocol):
    """Writes lines of rankings into the log of another process."""

    async def keep(self, user: str, line: bytes, deadline_ms: float) -> None:
        """Returns once a ranking of a user is in the log, and is known to be.

        Args:
            deadline_ms: when its answer is due, on the monotonic clock; it is waited for a little longer at most.

        Raises:
            LogError: it is not there, or it is not known whether it is.
        """
        ...
