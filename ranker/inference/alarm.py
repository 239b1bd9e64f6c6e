"""One wake-up at a time, at the earliest moment asked for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

from ranker.inference.batch_run import Clock


class Cancellable(Protocol):
    """A timer that has not rung."""

    def cancel(self) -> None:
        """It will not ring."""
        ...


Later = Callable[[float, Callable[[], None]], Cancellable]
"""Calls back after so many milliseconds."""


def loop_later(delay_ms: float, ring: Callable[[], None]) -> Cancellable:
    """The event loop's own timers."""
    return asyncio.get_running_loop().call_later(delay_ms / 1000.0, ring)


class Alarm:
    """Rings once, at the earliest moment since it last rang; it may ring early, never only late.

    Setting a later moment than the one that is set costs nothing: whoever is woken looks again and sets anew.
    """

    def __init__(self, ring: Callable[[], None], clock: Clock, later: Later = loop_later) -> None:
        self._ring = ring
        self._clock = clock
        self._later = later
        self._at_ms = math.inf
        self._timer: Cancellable | None = None

    def set(self, at_ms: float) -> None:
        """Asks to be woken at this moment."""
        if at_ms >= self._at_ms:
            return
        self.cancel()
        self._at_ms = at_ms
        self._timer = self._later(max(0.0, at_ms - self._clock()), self._rung)

    def cancel(self) -> None:
        """Nobody needs to be woken."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at_ms = None, math.inf

    def _rung(self) -> None:
        self._timer, self._at_ms = None, math.inf
        self._ring()
