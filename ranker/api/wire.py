"""Between ASGI and handlers: a call comes in, a reply goes out; nothing here knows what is asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

from starlette.types import Receive, Scope, Send

Headers = tuple[tuple[bytes, bytes], ...]
JSON = b"application/json"
NDJSON = b"application/x-ndjson"


class Call:
    """One request: its scope, its headers (lower case, the last of a name wins) and when it arrived.

    Args:
        arrived_ms: monotonic ms, before the body was read: what a budget counts from.
    """

    __slots__ = ("arrived_ms", "headers", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive, arrived_ms: float) -> None:
        self.scope = scope
        self.receive = receive
        self.arrived_ms = arrived_ms
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])

    @property
    def query(self) -> bytes:
        """The query string as it came."""
        query: bytes = self.scope.get("query_string", b"")
        return query


class Reply(NamedTuple):
    """A whole answer; a body of None sends neither body nor type (204)."""

    status: int = 200
    body: bytes | None = b""
    media: bytes = JSON
    headers: Headers = ()


class Stream(NamedTuple):
    """A 200 whose body is made while it is sent."""

    parts: AsyncGenerator[bytes, None]
    media: bytes = NDJSON
    status: int = 200


Handler = Callable[[Call], Awaitable[Reply | Stream]]


async def send_reply(send: Send, reply: Reply, *more: tuple[bytes, bytes]) -> None:
    """Sends it in one piece."""
    headers: list[Any] = [*reply.headers, *more]
    if reply.body is not None:
        headers += ((b"content-type", reply.media), (b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body or b""})


async def send_stream(send: Send, stream: Stream, *more: tuple[bytes, bytes]) -> None:
    """Sends each part as it is made; waits while the client does not take what there is."""
    headers: list[Any] = [*more, (b"content-type", stream.media)]
    await send({"type": "http.response.start", "status": stream.status, "headers": headers})
    async with aclosing(stream.parts) as parts:
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
