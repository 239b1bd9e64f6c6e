"""The lines of a body that need not end: read as they come, each within a limit, nothing kept that is done.

The next piece is asked for while the last one is worked on, so that a client that leaves is noticed between
two lines and not when its body has been used up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ranker.api.problems import BodyTimeout
from ranker.api.reading import next_chunk
from ranker.api.wire import Call
from ranker.errors import RequestError, TooLarge

Line = bytes | RequestError
"""A line without its break, or why it cannot be read."""


class LineReader:
    """Reads a call's lines; an async context manager, because it leaves no read behind.

    Args:
        limit: most bytes of a line; of a longer one only the error is given.
        idle_s: how long the next piece may take.
    """

    def __init__(self, call: Call, limit: int, idle_s: float) -> None:
        self._call, self._limit, self._idle_s = call, limit, idle_s
        self._held = bytearray()
        self._searched = 0
        self._ended = self._skipping = False
        self._next: asyncio.Task[tuple[bytes, bool]] | None = None

    async def __aenter__(self) -> LineReader:
        self._ask()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])
            if not self._next.cancelled():
                self._next.exception()  # seen: a client that left is no news any more

    @property
    def waits(self) -> bool:
        """Whether the next line has yet to arrive."""
        return not self._ended and self._held.find(b"\n", self._searched) < 0

    def check_connected(self) -> None:
        """Returns while the client is there. Raises Disconnected."""
        if self._next is not None and self._next.done():
            self._next.result()

    async def lines(self) -> AsyncIterator[Line]:
        """Every line that is not blank, in order. A time-out is the last one.

        Raises:
            Disconnected: the client left.
        """
        while not self._ended or self._held or self._skipping:
            end = self._held.find(b"\n", self._searched)
            if end < 0 and not self._ended:
                if (error := await self._more()) is not None:
                    yield error
                    return
                continue
            line = self._taken(end if end >= 0 else len(self._held))
            if line:
                yield line

    def _taken(self, end: int) -> Line:
        raw = bytes(self._held[:end])
        del self._held[: end + 1]
        self._searched = 0
        if self._skipping or len(raw) > self._limit:
            self._skipping = False
            return TooLarge(f"the line has more than {self._limit} bytes", "$")
        return raw.strip(b" \t\r")

    async def _more(self) -> RequestError | None:
        assert self._next is not None
        if len(self._held) > self._limit:
            self._skipping = True
            self._held.clear()
        self._searched = len(self._held)
        done, _ = await asyncio.wait([self._next], timeout=self._idle_s)
        if not done:
            return BodyTimeout(f"nothing arrived within {self._idle_s:g} s")
        chunk, more = self._next.result()
        self._held += chunk
        self._ended = not more
        self._ask()  # at the end too: what then comes is that the client has left
        return None

    def _ask(self) -> None:
        self._next = asyncio.create_task(next_chunk(self._call))
