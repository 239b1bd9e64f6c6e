"""A follower's connection as the keeper sees it: what is sent is counted, and leaves once per turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ranker.workers.frames import framed
from ranker.workers.lease import Member
from ranker.workers.messages import Beat, Told, packed

MAX_WAITING_BYTES = 128 << 20
"""Who does not read this much is given up: it would have to be sent the whole anew anyway."""


@dataclass
class Line:
    """Sends to one follower.

    Args:
        transport: of its connection.
        now_ms: the machine's monotonic clock.
    """

    worker: int
    pid: int
    transport: asyncio.WriteTransport
    member: Member
    now_ms: Callable[[], float]
    _waiting: list[bytes] = field(default_factory=list, init=False)

    def tell(self, message: Told) -> None:
        """Sends a message, in order with all others; one to who has left goes nowhere."""
        self.tell_packed(packed(message))

    def tell_packed(self, body: bytes) -> None:
        """The same of a message that goes to several."""
        if self.member.gone:
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(framed(body))
        self.member.count(self.now_ms())

    def beat(self, lag_ms: float, end: int) -> None:
        """Lets the follower rely on what it was told before."""
        now_ms = self.now_ms()
        self.tell(Beat(now_ms, lag_ms, end))
        self.member.beats(now_ms)

    async def drained(self) -> None:
        """Returns once it has taken most of what was sent, or has left."""
        self._flush()
        while self.transport.get_write_buffer_size() > MAX_WAITING_BYTES // 32 and not self.member.gone:
            await asyncio.sleep(0.002)
        await asyncio.sleep(0)

    def end(self) -> None:
        """Gives the follower up."""
        self.member.gone = True
        self._waiting.clear()
        self.transport.abort()

    def _flush(self) -> None:
        if self._waiting and not self.member.gone:
            self.transport.write(b"".join(self._waiting))
        self._waiting.clear()
        if self.transport.get_write_buffer_size() > MAX_WAITING_BYTES:
            self.end()
