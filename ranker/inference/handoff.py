"""What the way to the device's thread and back costs, beside the device's own time.

It swings with the load of the event loop and the machine, not with the size of a batch, so it is kept apart from the
cost of a batch: what it typically is counts with every batch, what it may be at worst is taken off a deadline once.
"""

from __future__ import annotations

from collections import deque

KEPT = 128
LOOK_EVERY = 16
LARGEST_SHARE = 0.1
"""Of a budget, that is taken off for the worst case: a stalled machine must not turn all its traffic away."""


class Handoff:
    """The recent lags of batches, in ms."""

    def __init__(self) -> None:
        self._lags: deque[float] = deque(maxlen=KEPT)
        self._count = 0
        self.typical_ms = 0.0
        self.worst_ms = 0.0

    def took(self, lag_ms: float) -> None:
        """Told how long a batch was on its way, there and back."""
        self._lags.append(max(0.0, lag_ms))
        self._count += 1
        if self._count % LOOK_EVERY == 0 or self._count < LOOK_EVERY:
            ordered = sorted(self._lags)
            self.typical_ms = ordered[len(ordered) // 2]
            self.worst_ms = ordered[round(0.99 * (len(ordered) - 1))]

    def before(self, deadline_ms: float, budget_ms: float) -> float:
        """The instant at which the device must be done so that the caller hears in time."""
        return deadline_ms - min(self.worst_ms, LARGEST_SHARE * budget_ms)
