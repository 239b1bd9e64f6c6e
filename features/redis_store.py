"""The feature store on a Valkey or Redis server (7 or later), embedded or external; the only importer of redis.

One request is one exchange on one connection; a connection whose exchange did not end is dropped, so
an answer that comes late is never taken for the next one. Nothing is retried: the caller has a deadline.
One store serves one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from redis.asyncio.connection import AbstractConnection, ConnectionPool

from features.circuit import Circuit
from features.errors import StoreUnavailable
from features.store import Snapshot
from features.store_health import StoreHealth
from features.store_layout import Layout

T = TypeVar("T")
Command = tuple[bytes | int, ...]
Work = Callable[[AbstractConnection], Awaitable[T]]

SCAN_COUNT = 1000
FIELDS_PER_COMMAND = 5000
_URL_OPTIONS = frozenset({"username", "password", "host", "port", "db", "path", "connection_class"})
# redis renamed it in 8.0 and warns about the old name
_has_input = getattr(AbstractConnection, "can_read", None) or AbstractConnection.can_read_destructive


@dataclass(frozen=True)
class SlowLimits:
    """Time-outs of what no request waits for, in ms."""

    connect_ms: float = 2000.0
    commit_ms: float = 5000.0
    population_ms: float = 60_000.0
    clear_ms: float = 60_000.0


class _Lanes:
    """At most `size` exchanges at a time, each on a connection of its own.

    Opening a connection is a task of its own with its own limit: a request that cannot wait for it
    leaves it to the next, so that a slow handshake (TLS, far away) does not start over for ever.
    """

    def __init__(self, pool: ConnectionPool, size: int, connect_s: float) -> None:
        self._pool = pool
        self._size = size
        self._connect_s = connect_s
        self._free = asyncio.Semaphore(size)
        self._idle: list[AbstractConnection] = []
        self._opening: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def lane(self) -> AsyncIterator[AbstractConnection]:
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

    async def _take(self) -> AbstractConnection:
        while not self._closed:
            while self._idle:
                connection = self._idle.pop()
                if await _is_clean(connection):
                    return connection
                await connection.disconnect(nowait=True)
            await asyncio.shield(self._open_one())
        raise StoreUnavailable("the store is closed")

    def _open_one(self) -> asyncio.Task[None]:
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(_take_notice)
        return self._opening

    async def _open(self) -> None:
        connection = self._pool.make_connection()
        try:
            async with asyncio.timeout(self._connect_s):
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._idle.append(connection)


class RedisStore:
    """The FeatureStore role on a server.

    Reads, claims and puts go through the circuit; commits and the rest do not: their callers have no
    deadline, and try again in their own time. `health` counts. After StoreTimeout or StoreUnavailable
    from `commit` its effect is unknown: read `applied`. A commit that the server executes late, after
    another one went through, is refused there (WATCH).
    """

    def __init__(
        self, lanes: _Lanes, layout: Layout, address: _Address, timeout_ms: float, slow: SlowLimits, circuit: Circuit
    ) -> None:
        self._lanes = lanes
        self._layout = layout
        self._address = address
        self._timeout_ms = timeout_ms
        self._slow = slow
        self._clock: Callable[[], float] = time.monotonic
        self._on_close: Callable[[], None] | None = None
        self.circuit = circuit
        self.health = StoreHealth(circuit)

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        prefix: str = "na",
        timeout_ms: float = 15.0,
        circuit: Circuit | None = None,
        slow: SlowLimits | None = None,
        connections: int = 8,
        clock: Callable[[], float] = time.monotonic,
        on_close: Callable[[], None] | None = None,
    ) -> RedisStore:
        """A store at `url`; the first call opens a connection (`ping` tells whether it can).

        Args:
            url: `redis://`, `rediss://` (with `ssl_…` options) or `unix://`, with `db`, `username`, `password`.
            prefix: what every key starts with; stores with different prefixes do not see each other.
            timeout_ms: limit of a read, claim or put, in ms.
            circuit: None takes the defaults.
            connections: at most so many are used at a time; more calls wait within their time-out.
            clock: seconds, monotonic; for the circuit.
            on_close: called by `close` after the connections ended; blocking.

        Raises:
            StoreUnavailable: the URL cannot be used; the message holds no part of it that may be secret.
            ValueError: an unusable prefix.
        """
        slow = slow or SlowLimits()
        layout = Layout(prefix)
        options = _url_options(url)
        lanes = _Lanes(_pool(options), connections, slow.connect_ms / 1000.0)
        store = cls(lanes, layout, _Address(options), timeout_ms, slow, circuit or Circuit())
        store._clock, store._on_close = clock, on_close
        return store

    def __repr__(self) -> str:
        return f"RedisStore({self._address}, prefix={self._layout.prefix!r})"

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        """All keys and the applied offset, in one MGET."""
        command: Command = (b"MGET", self._layout.applied, *map(self._layout.row, keys))
        self.health.reads += self.circuit.state == "closed"
        started = self._clock()
        (values,) = await self._request("read", [command], timeout_ms)
        self.health.read_ms.append((self._clock() - started) * 1000.0)
        return Snapshot(self._offset(values[0]), tuple(values[1:]))
