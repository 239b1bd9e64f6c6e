"""Errors of planned memory.

PlannedMemoryError
├── InvalidSize       a size, shape, share or length that cannot be; also a ValueError
├── DeviceMissing     the device that was asked for is not there
├── PoolExhausted     it does not fit into the pool; nothing was taken
├── LeaseError        a lease used before it was taken, after its release, or released twice
├── HistoryTooLong    a history that the page arena could not hold even if it were empty
├── PagesBusy         every page that could be evicted is in use: try again when a batch has ended
└── NotFinite         NaN, an infinity or a range beyond float32 where keys and values were to be written
"""

from __future__ import annotations


class PlannedMemoryError(Exception):
    """Root of the errors of the pool, the pages and their formats."""


class InvalidSize(PlannedMemoryError, ValueError):
    """A size, shape, share or length that cannot be; names the field and the value."""


class DeviceMissing(PlannedMemoryError):
    """The device that was asked for is not there, or is of an unknown kind."""


class PoolExhausted(PlannedMemoryError):
    """What was asked for does not fit; nothing was taken.

    Args:
        wanted: bytes asked for.
        free: bytes free in all.
        largest_run: bytes of the longest free run.
    """

    def __init__(self, wanted: int, free: int, largest_run: int, why: str = "") -> None:
        super().__init__(
            f"{wanted} bytes do not fit: {free} bytes free, largest run {largest_run} bytes{why and '; ' + why}"
        )
        self.wanted = wanted
        self.free = free
        self.largest_run = largest_run


class LeaseError(PlannedMemoryError):
    """A lease that is not held was used, or one was taken or released twice."""


class HistoryTooLong(PlannedMemoryError):
    """A history needs more pages than there are; it will never fit, so it is refused at admission.

    Args:
        needed: pages that its window fills.
        pages: pages there are.
    """

    def __init__(self, needed: int, pages: int) -> None:
        super().__init__(f"the history fills {needed} pages, the arena has {pages}")
        self.needed = needed
        self.pages = pages


class PagesBusy(PlannedMemoryError):
    """Nothing more can be evicted now; nothing was pinned.

    Args:
        needed: pages wanted beyond those found.
        evictable: pages that are not in use.
    """

    def __init__(self, kind: str, needed: int, evictable: int) -> None:
        super().__init__(f"{needed} {kind} pages needed, {evictable} not in use")
        self.kind = kind
        self.needed = needed
        self.evictable = evictable


class NotFinite(PlannedMemoryError, ValueError):
    """Keys or values hold NaN, an infinity, or a range that float32 cannot express."""
