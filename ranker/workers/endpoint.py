"""The keeper's private socket on which followers find the feed."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path
from typing import cast

from ranker.workers.desk import Desk
from ranker.workers.errors import FeedError
from ranker.workers.frames import Unframer
from ranker.workers.line import Line
from ranker.workers.messages import Hello, said

FEED, FORWARD = "feed", "http"
"""Names of the two sockets in the keeper's private folder."""

_log = logging.getLogger(__name__)


def private_socket(folder: Path, name: str) -> socket.socket:
    """A bound unix socket that only this user can connect to.

    Raises:
        OSError: it cannot be made there.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(str(folder / name))
        os.chmod(folder / name, 0o600)  # noqa: PTH101
    except OSError:
        made.close()
        raise
    return made


async def open_feed(desk: Desk, folder: Path) -> asyncio.Server:
    """Lets followers in."""
    loop = asyncio.get_running_loop()
    return await loop.create_unix_server(lambda: _Connection(desk), sock=private_socket(folder, FEED))


class _Connection(asyncio.Protocol):
    """Reads one follower; what it may not say ends it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._unframer = Unframer()
        self._transport: asyncio.WriteTransport | None = None
        self._line: Line | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._unframer.feed(data):
                self._hear(body)
        except FeedError as error:
            _log.error("a worker is given up: %s", error)
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._line is not None:
            self._desk.close(self._line)

    def _hear(self, body: bytes) -> None:
        message = said(body)
        assert self._transport is not None
        if self._line is not None:
            self._desk.hear(self._line, message)
        elif isinstance(message, Hello):
            self._line = self._desk.open(message, self._transport)
        else:
            raise FeedError(f"a follower says {type(message).__name__} before Hello")
