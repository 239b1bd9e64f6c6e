"""Who takes memory, by part and by shape, over the last seconds: a ring of one-second tallies."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

KEPT_S = 300
MOST_KEYS = 512
"""Distinct (part, shape) pairs in a second; what comes after them is counted as `other`."""

Key = tuple[str, str]


class Tally(msgspec.Struct):
    """How often memory was taken, and how much."""

    takes: int = 0
    total_bytes: int = 0
    largest_bytes: int = 0

    def add(self, takes: int, total_bytes: int, largest_bytes: int) -> None:
        """Joins what was counted elsewhere."""
        self.takes += takes
        self.total_bytes += total_bytes
        self.largest_bytes = max(self.largest_bytes, largest_bytes)


class HotSpot(msgspec.Struct, frozen=True):
    """One name of the profile's lists.

    Args:
        takes: times in the window.
        total_bytes: of all takes together, and
        largest_bytes: of the largest.
    """

    name: str
    takes: int
    total_bytes: int
    largest_bytes: int


class HotSpots:
    """Bounded whatever the traffic: at most 300 seconds of at most 512 keys.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds: deque[tuple[int, dict[Key, Tally]]] = deque(maxlen=KEPT_S)
        self._lock = threading.Lock()

    def record(self, part: str, shape: str, nbytes: int) -> None:
        """Counts one take."""
        with self._lock:
            tallies = self._current()
            key = (part, shape)
            if key not in tallies and len(tallies) >= MOST_KEYS:
                key = ("other", "other")
            tallies.setdefault(key, Tally()).add(1, nbytes, nbytes)

    def by_part(self, window_s: float, most: int = 10) -> list[HotSpot]:
        """Parts by the bytes they took in the window, most first."""
        return self._ranked(window_s, 0, most)

    def by_shape(self, window_s: float, most: int = 10) -> list[HotSpot]:
        """Shapes by the bytes taken for them in the window, most first."""
        return self._ranked(window_s, 1, most)

    def _current(self) -> dict[Key, Tally]:
        second = int(self._clock())
        if not self._seconds or self._seconds[-1][0] < second:
            self._seconds.append((second, {}))
        return self._seconds[-1][1]

    def _ranked(self, window_s: float, index: int, most: int) -> list[HotSpot]:
        sums: dict[str, Tally] = {}
        with self._lock:
            for key, tally in self._within(window_s):
                if key[index]:
                    sums.setdefault(key[index], Tally()).add(tally.takes, tally.total_bytes, tally.largest_bytes)
        ranked = sorted(sums.items(), key=lambda item: (-item[1].total_bytes, item[0]))
        return [HotSpot(name, each.takes, each.total_bytes, each.largest_bytes) for name, each in ranked[:most]]

    def _within(self, window_s: float) -> Iterator[tuple[Key, Tally]]:
        since = self._clock() - window_s
        for second, tallies in self._seconds:
            if second + 1 > since:
                yield from tallies.items()
