"""The connections of a store: how many, which may be lent, and when one is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from features.errors import StoreUnavailable
from features.store_exchange import Wire

W = TypeVar("W", bound=Wire)


class Lanes(Generic[W]):
    """At most `size` exchanges at a time, each on a connection of its own.

    Opening a connection is a task of its own with its own limit: a request that cannot wait for it
    leaves it to the next, so that a slow handshake (TLS, far away) does not start over for ever.

    Args:
        make: a connection, not yet open.
        is_clean: whether an idle one is open and nothing has come in that nobody asked for.
        size: at most so many are in use; more callers wait.
        connect_s: limit of opening one, in seconds; ConnectionError beyond.
    """

    def __init__(
        self, make: Callable[[], W], is_clean: Callable[[W], Awaitable[bool]], size: int, connect_s: float
    ) -> None:
        self._make = make
        self._is_clean = is_clean
        self._size = size
        self._connect_s = connect_s
        self._free = asyncio.Semaphore(size)
        self._idle: list[W] = []
        self._opening: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def lane(self) -> AsyncIterator[W]:
        """A connection with nothing in flight; dropped when the body raises anything."""
        async with self._free:
            connection = await self._take()
            try:
                yield connection
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
            if self._closed or len(self._idle) >= self._size:
                await connection.disconnect(nowait=True)
            else:
                self._idle.append(connection)

    async def close(self) -> None:
        """Ends idle connections and the one that is opening; those in use end with their exchange."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        while self._idle:
            await self._idle.pop().disconnect()

    async def _take(self) -> W:
        while not self._closed:
            while self._idle:
                connection = self._idle.pop()
                if await self._is_clean(connection):
                    return connection
                await connection.disconnect(nowait=True)
            await asyncio.shield(self._open_one())
        raise StoreUnavailable("the store is closed")

    def _open_one(self) -> asyncio.Task[None]:
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # it is not lost
        return self._opening

    async def _open(self) -> None:
        connection = self._make()
        try:
            async with asyncio.timeout(self._connect_s):
                await connection.connect()
        except TimeoutError as error:
            await connection.disconnect(nowait=True)
            raise ConnectionError(f"no connection within {self._connect_s * 1000.0:g} ms") from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._idle.append(connection)
