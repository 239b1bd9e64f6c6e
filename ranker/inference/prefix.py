"""Sums before a place, kept while places change: a Fenwick tree of (tokens, requests)."""

from __future__ import annotations

from collections.abc import Sequence

Load = tuple[int, int]


class PrefixSums:
    """(tokens, requests) before any of `n` places in O(log n)."""

    __slots__ = ("_requests", "_tokens")

    def __init__(self) -> None:
        self.rebuild(())

    def rebuild(self, loads: Sequence[Load]) -> None:
        """Starts again from the loads of all places; O(n)."""
        self._tokens, self._requests = [0, *(load[0] for load in loads)], [0, *(load[1] for load in loads)]
        for place in range(1, len(self._tokens)):
            above = place + (place & -place)
            if above < len(self._tokens):
                self._tokens[above] += self._tokens[place]
                self._requests[above] += self._requests[place]

    def add(self, place: int, tokens: int, requests: int) -> None:
        """Adds to one place."""
        place += 1
        while place < len(self._tokens):
            self._tokens[place] += tokens
            self._requests[place] += requests
            place += place & -place

    def append(self, tokens: int, requests: int) -> None:
        """Adds a place at the end."""
        place = len(self._tokens)
        below, stop = place - 1, place & (place - 1)
        while below > stop:
            tokens += self._tokens[below]
            requests += self._requests[below]
            below &= below - 1
        self._tokens.append(tokens)
        self._requests.append(requests)

    def before(self, place: int) -> Load:
        """The sums over the places below this one."""
        tokens = requests = 0
        while place:
            tokens += self._tokens[place]
            requests += self._requests[place]
            place &= place - 1
        return tokens, requests
