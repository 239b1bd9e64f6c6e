"""The least that speaks HTTP: one asyncio protocol, the same for the engine and for its floor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec

Reply = Callable[[int, bytes], None]
"""Takes the status and a JSON body; does nothing once the client has gone."""


class Asked(msgspec.Struct, frozen=True):
    """The body of a request; without numbers it asks for the figures."""

    x: list[float] = []
    priority: str = "normal"
    budget_ms: float = 50.0


class Call:
    """One request on a connection.

    Args:
        leave: called when the client goes before it is answered; set by whoever serves the call.
    """

    __slots__ = ("gone", "leave", "transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.gone = False
        self.leave: Callable[[], Any] | None = None

    def reply(self, status: int, body: bytes) -> None:
        """Answers."""
        if not self.gone:
            self.transport.write(
                b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (status, len(body), body)
            )


class Front(asyncio.Protocol):
    """One connection with one call at a time.

    Args:
        serve: takes what was asked, and the call to reply to.
    """

    def __init__(self, serve: Callable[[Asked, Call], None]) -> None:
        self._serve = serve
        self._read = b""
        self._transport: asyncio.Transport | None = None
        self._call: Call | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # asyncio's shape
        """The client has gone: what it asked is not wanted any more."""
        if self._call is not None:
            self._call.gone = True
            if self._call.leave is not None:
                self._call.leave()

    def data_received(self, data: bytes) -> None:
        """Serves each call whose head and body are here."""
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._read) < end + 4 + length:
                return
            body, self._read = self._read[end + 4 : end + 4 + length], self._read[end + 4 + length :]
            assert self._transport is not None
            self._call = Call(self._transport)
            self._serve(_DECODER.decode(body) if body else Asked(), self._call)


_DECODER = msgspec.json.Decoder(Asked)
