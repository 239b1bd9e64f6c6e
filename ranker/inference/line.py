"""A queue in key order that knows what stands before a key.

Sorted chunks of at most `CHUNK` entries: a binary search finds the chunk and the place in it, and the sums of all
chunks but the last, to which most are added, are prefix sums. An operation makes O(log n) comparisons and moves at most
one chunk; the prefix sums are rebuilt when a chunk is split or used up, which is once in at least `CHUNK / 2`
operations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain
from math import inf
from operator import itemgetter

from ranker.inference.prefix import Load, PrefixSums
from ranker.inference.waiting import Waiting

CHUNK = 256

Entry = tuple[float, int, Waiting]

_WAITING = itemgetter(2)


class Line:
    """Waiting requests in order of (key, number)."""

    __slots__ = ("_chunks", "_lasts", "_sums", "_weights", "requests", "tokens")

    def __init__(self) -> None:
        self._chunks: list[list[Entry]] = []
        self._weights: list[list[int]] = []
        self._lasts: list[Entry] = []
        self._sums = PrefixSums()
        self.tokens = 0
        self.requests = 0

    def __iter__(self) -> Iterator[Waiting]:
        """Those in it, in order; the line must not change meanwhile."""
        return map(_WAITING, chain.from_iterable(self._chunks))

    def first(self) -> Entry:
        """The entry at the front of a line that is not empty."""
        return self._chunks[0][0]

    def before(self, key_ms: float) -> Load:
        """Tokens and requests ahead of a newcomer with this key."""
        if not self._lasts or self._lasts[-1][0] <= key_ms:
            return self.tokens, self.requests
        # No number is infinite: those with an equal key are ahead of the newcomer.
        newcomer = (key_ms, inf)
        index = bisect_left(self._lasts, newcomer)
        tokens, requests = self._sums.before(index)
        place = bisect_left(self._chunks[index], newcomer)
        return tokens + sum(self._weights[index][:place]), requests + place

    def add(self, entry: Entry, tokens: int) -> None:
        """Puts one in its place."""
        self.tokens += tokens
        self.requests += 1
        if not self._lasts or self._lasts[-1] < entry:
            if self._chunks and len(self._chunks[-1]) < CHUNK:
                self._chunks[-1].append(entry)
                self._weights[-1].append(tokens)
                self._lasts[-1] = entry
            else:
                self._open(entry, tokens)
            return
        index = bisect_left(self._lasts, entry)
        chunk = self._chunks[index]
        place = bisect_left(chunk, entry)
        chunk.insert(place, entry)
        self._weights[index].insert(place, tokens)
        if index < len(self._lasts) - 1:
            self._sums.add(index, tokens, 1)
        if len(chunk) > CHUNK:
            self._split(index)

    def remove(self, waiting: Waiting) -> None:
        """Takes out one that stands in the line."""
        entry = (waiting.key_ms, waiting.number, waiting)
        index = bisect_left(self._lasts, entry)
        place = bisect_left(self._chunks[index], entry)
        self._cut(index, place, place + 1)

    def drop_first(self, count: int) -> None:
        """Takes out this many from the front."""
        while count:
            here = min(count, len(self._chunks[0]))
            self._cut(0, 0, here)
            count -= here

    def _open(self, entry: Entry, tokens: int) -> None:
        if self._weights:
            self._sums.append(sum(self._weights[-1]), len(self._weights[-1]))
        self._chunks.append([entry])
        self._weights.append([tokens])
        self._lasts.append(entry)

    def _cut(self, index: int, start: int, stop: int) -> None:
        chunk, weights = self._chunks[index], self._weights[index]
        tokens = sum(weights[start:stop])
        self.tokens -= tokens
        self.requests -= stop - start
        del chunk[start:stop], weights[start:stop]
        if chunk:
            self._lasts[index] = chunk[-1]
            if index < len(self._lasts) - 1:
                self._sums.add(index, -tokens, start - stop)
        else:
            del self._chunks[index], self._weights[index], self._lasts[index]
            self._resum()

    def _split(self, index: int) -> None:
        chunk, weights, half = self._chunks[index], self._weights[index], CHUNK // 2
        self._chunks[index : index + 1] = [chunk[:half], chunk[half:]]
        self._weights[index : index + 1] = [weights[:half], weights[half:]]
        self._lasts[index : index + 1] = [chunk[half - 1], chunk[-1]]
        self._resum()

    def _resum(self) -> None:
        self._sums.rebuild([(sum(weights), len(weights)) for weights in self._weights[:-1]])
