"""Runs an ASGI application on uvicorn in this process: loopback unless told otherwise, a port that is known first.

The caller opens the listener (so port 0 is a number before anything starts), builds the application on
the loop it will run on, and closes what it opened once `serve` has returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LOOPBACK = "127.0.0.1"
MAX_HEADER_BYTES = 32 * 1024
T = TypeVar("T")
ASGIApp = Callable[..., Awaitable[None]]

_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@dataclass(frozen=True)
class ServerConfig:
    """How connections are treated.

    Args:
        keep_alive_s: an idle connection is kept this long; longer than clients keep theirs, so that they
            never write into one that is closing.
        grace_s: a request in flight gets this long to end when the server stops.
        backlog: connections that wait for `accept`.
    """

    keep_alive_s: int = 75
    grace_s: int = 10
    backlog: int = 2048


def listen(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A bound socket; port 0 takes a free one.

    Raises:
        OSError: the address is in use or not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """`http://127.0.0.1:8080`."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    config: ServerConfig | None = None,
    on_started: Callable[[str], None] | None = None,
) -> None:
    """Serves until `stop` is set, then lets requests in flight end and closes the listener.

    Args:
        on_started: called with the URL once connections are accepted.
    """
    server = _Server(_uvicorn_config(app, config or ServerConfig()))
    serving = asyncio.create_task(server.serve([listener]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await _until_started(server, serving)
        if on_started is not None:
            on_started(url_of(listener))
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        server.should_exit = True
        await serving


@contextlib.contextmanager
def stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """Within it SIGINT and SIGTERM set `stop` instead of ending the process; on the main thread only."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def run_on_uvloop(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again after its shutdown, before our log and store are closed.
        yield


class _BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose request line and headers do not end: the parser alone would keep them all."""

    _in_head = True
    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        # Judged after parsing: a head that came whole within one read is bounded by the read.
        if self._in_head and self._head_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()


async def _until_started(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    if serving.done():
        serving.result()


def _uvicorn_config(app: ASGIApp, config: ServerConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_BoundedHttp,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=config.keep_alive_s,
        timeout_graceful_shutdown=config.grace_s,
        backlog=config.backlog,
    )
