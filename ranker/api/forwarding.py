"""Requests that a follower hands on to the keeper as they are, and the keeper's answers as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
from starlette.types import Receive, Scope, Send

from ranker.api.limits import Limits
from ranker.api.problems import Malformed, reply_for
from ranker.api.reading import Disconnected
from ranker.api.wire import send_reply
from ranker.errors import ServiceUnavailable

CONNECT_S, ANSWER_S = 5.0, 300.0
IDLE_S, IDLE_CONNECTIONS = 30.0, 32

_OWN_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade", b"expect", b"proxy-authenticate")
)
_OWN_ANSWER = _OWN_HOP | {b"transfer-encoding", b"date", b"server"}


class Forwarding:
    """An ASGI application that is another process's.

    Args:
        socket_path: where that listens.
        limits: for the answer when it cannot be reached.
    """

    def __init__(self, socket_path: str, limits: Limits) -> None:
        self._limits = limits
        pool = httpx.Limits(max_connections=None, max_keepalive_connections=IDLE_CONNECTIONS, keepalive_expiry=IDLE_S)
        self._transport = httpx.AsyncHTTPTransport(uds=socket_path, limits=pool)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            response = await self._transport.handle_async_request(_request(scope, receive))
        except Disconnected:
            return
        except httpx.LocalProtocolError as error:
            await send_reply(send, reply_for(Malformed(f"the request cannot be handed on: {error}"), self._limits))
            return
        except httpx.TransportError as error:
            failure = ServiceUnavailable(f"the process that does this cannot be reached ({type(error).__name__})")
            await send_reply(send, reply_for(failure, self._limits))
            return
        try:
            await _answer(response, send)
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Ends the connections."""
        await self._transport.aclose()


def _request(scope: Scope, receive: Receive) -> httpx.Request:
    query: bytes = scope.get("query_string", b"")
    target = scope["raw_path"] + (b"?" + query if query else b"")
    headers = [(name, value) for name, value in scope["headers"] if name not in _OWN_HOP]
    sends = any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)
    times = {"connect": CONNECT_S, "read": ANSWER_S, "write": ANSWER_S, "pool": CONNECT_S}
    return httpx.Request(
        scope["method"],
        "http://keeper/",
        headers=headers,
        content=_body(receive) if sends else None,
        extensions={"target": target, "timeout": times},
    )


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        more = message.get("more_body", False)
        if body := message.get("body", b""):
            yield body


async def _answer(response: httpx.Response, send: Send) -> None:
    headers: list[Any] = [(name.lower(), value) for name, value in response.headers.raw]
    kept = [(name, value) for name, value in headers if name not in _OWN_ANSWER]
    await send({"type": "http.response.start", "status": response.status_code, "headers": kept})
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for piece in response.stream:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
