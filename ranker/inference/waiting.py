"""A request in the queue, as the scheduler keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ranker.inference.request import Request

if TYPE_CHECKING:
    from ranker.inference.lane import Lane


class Waiting(msgspec.Struct, eq=False, gc=False):
    """An admitted request; the collector does not look at it, so whoever is empty must let go of it.

    Args:
        arrival_ms: never later than the moment it was offered.
        key_ms: its place in its class, min(deadline, arrival + ageing): ageing as a key that never changes.
        number: counts offers, and so orders equal keys.
    """

    request: Request
    lane: Lane
    tokens: int
    arrival_ms: float
    deadline_ms: float
    key_ms: float
    number: int
    gone: bool = False
