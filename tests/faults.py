"""A proxy before a store that misbehaves as told: slow, silent, half an answer, a reset."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType


@dataclass(frozen=True)
class Fault:
    """What a proxy does to answers from now on, on connections old and new.

    Args:
        delay_s: how long each piece of an answer is held back.
        stall_after: bytes of answers let through from now on, before everything is held until the fault changes.
        reset_after: bytes of answers let through from now on, before their connection is reset.
        hold_requests: what the client sends is held until the fault changes.
        refuse: new connections are closed at once.
    """

    delay_s: float = 0.0
    stall_after: int | None = None
    reset_after: int | None = None
    hold_requests: bool = False
    refuse: bool = False


NO_FAULT = Fault()
BLACK_HOLE = Fault(stall_after=0)


class StoreProxy:
    """Listens on a TCP port and, per connection, speaks to the server's unix socket.

    What was held is delivered when the fault changes, to whoever still listens. Use as
    `async with StoreProxy(socket_path) as proxy: … proxy.url …`.
    """

    def __init__(self, socket_path: Path) -> None:
        self._socket_path = socket_path
        self._fault = NO_FAULT
        self._changed = asyncio.Event()
        self._passed = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.accepted = 0
        """Connections so far."""

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"redis://127.0.0.1:{self.port}/0"

    def behave(self, fault: Fault) -> None:
        """Takes on a fault, or `NO_FAULT`; releases what the one before held."""
        self._fault = fault
        self._passed = 0
        self._changed.set()
        self._changed = asyncio.Event()

    def reset_all(self) -> None:
        """Resets every connection."""
        for writer in list(self._writers):
            _reset(writer)

    async def __aenter__(self) -> StoreProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # lets the transports end

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._fault.refuse:
            _reset(writer)
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(str(self._socket_path))
        except OSError:  # the server is down
            _reset(writer)
            return
        self._writers |= {writer, up_writer}
        requests = asyncio.create_task(self._forward(reader, up_writer, answers=False))
        answers = asyncio.create_task(self._forward(up_reader, writer, answers=True))
        try:
            await asyncio.wait({requests, answers})
        finally:
            requests.cancel()
            answers.cancel()
            await asyncio.gather(requests, answers, return_exceptions=True)
            for end in (writer, up_writer):
                end.transport.abort()
            self._writers -= {writer, up_writer}

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(65536):
                if answers:
                    await self._answer(piece, sink)
                else:
                    while self._fault.hold_requests:
                        await self._changed.wait()
                    sink.write(piece)
                await sink.drain()
        sink.close()

    async def _answer(self, piece: bytes, sink: asyncio.StreamWriter) -> None:
        while piece:
            fault = self._fault
            if fault.delay_s:
                await asyncio.sleep(fault.delay_s)
            limits = [limit for limit in (fault.stall_after, fault.reset_after) if limit is not None]
            room = min(limits) - self._passed if limits else len(piece)
            now, piece = piece[:room], piece[room:]
            self._passed += len(now)
            sink.write(now)
            if piece and fault.reset_after is not None and self._passed >= fault.reset_after:
                await sink.drain()
                _reset(sink)
                return
            while piece and self._fault is fault:
                await self._changed.wait()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with RST rather than FIN, where the transport has such a thing."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
