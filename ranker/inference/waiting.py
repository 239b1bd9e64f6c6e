"""A request in the queue, as the scheduler keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ranker.inference.request import Request

if TYPE_CHECKING:
    from ranker.inference.lane import Lane


class Waiting:
    """An admitted request.

    Args:
        arrival_ms: never later than the moment it was offered.
        key_ms: its place in its class, min(deadline, arrival + ageing): ageing as a key that never changes.
        number: counts offers, and so orders equal keys.
    """

    __slots__ = ("arrival_ms", "deadline_ms", "gone", "key_ms", "lane", "number", "request", "tokens")

    def __init__(self, request: Request, arrival_ms: float, key_ms: float, number: int, lane: Lane) -> None:
        self.request = request
        self.tokens = int(request.token_budget)
        self.deadline_ms = request.deadline_ms
        self.arrival_ms = arrival_ms
        self.key_ms = key_ms
        self.number = number
        self.lane = lane
        self.gone = False
