"""Time as an argument: wall time for what happened when, monotonic time for how long a caller will wait."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Two readings that must not be mixed."""

    def now_s(self) -> float:
        """Unix seconds in whole milliseconds, as the log keeps them."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back; for budgets and durations."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_s(self) -> float:
        """Unix seconds in whole milliseconds."""
        return round(time.time() * 1000.0) / 1000.0

    def monotonic_ms(self) -> float:
        """Milliseconds since some start."""
        return time.perf_counter() * 1000.0


@dataclass
class ManualClock:
    """A clock that a test moves: a day in a moment."""

    wall_s: float = 1_700_000_000.0
    elapsed_ms: float = 0.0

    def now_s(self) -> float:
        """Unix seconds in whole milliseconds."""
        return round(self.wall_s * 1000.0) / 1000.0

    def monotonic_ms(self) -> float:
        """Milliseconds since the clock was made."""
        return self.elapsed_ms

    def advance(self, seconds: float) -> None:
        """Moves both readings."""
        self.wall_s += seconds
        self.elapsed_ms += seconds * 1000.0
