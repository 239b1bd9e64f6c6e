"""How long what is written has been waiting to be applied."""

from __future__ import annotations

from collections import deque

MAX_OBSERVATIONS = 4096


class LagMeter:
    """Sans I/O: it is told what was seen written and what is applied, and when.

    The age is that of the oldest event not yet applied, to the precision of the observations.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque()
        self._applied = 0

    def written(self, offset: int, now_ms: float) -> None:
        """Says that everything below `offset` was written by a monotonic instant."""
        if offset <= (self._seen[-1][0] if self._seen else self._applied):
            return
        if len(self._seen) < MAX_OBSERVATIONS:
            self._seen.append((offset, now_ms))
        else:
            # Far behind: what is new shares the last observation, whose age only errs upwards.
            self._seen[-1] = (offset, self._seen[-1][1])

    def applied(self, offset: int) -> None:
        """Says that everything below `offset` is in effect."""
        self._applied = offset
        while self._seen and self._seen[0][0] <= offset:
            self._seen.popleft()

    def lag_ms(self, now_ms: float) -> float:
        """0 when nothing is waiting."""
        return max(0.0, now_ms - self._seen[0][1]) if self._seen else 0.0
