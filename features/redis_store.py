"""The feature store on a Valkey or Redis server (7 or later), embedded or external; the only importer of redis.

One call is one exchange on one connection; a connection whose exchange did not end is dropped, so an
answer that comes late is never taken for the next one. Nothing is retried: the caller has a deadline.
One store serves one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeVar, Union

from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from features import store_commands as commands
from features.circuit import Circuit
from features.errors import StoreTimeout, StoreUnavailable
from features.store import Commit, Snapshot
from features.store_commands import Command
from features.store_exchange import clear_keys, exchange, scan_cells
from features.store_health import StoreHealth
from features.store_lanes import Lanes
from features.store_layout import Layout, check_commit, check_ttl, fits, glob_of, split_field, table_start
from features.store_url import StoreUrl, parse_store_url

T = TypeVar("T")
Driver = Union["_Unix", "_Tcp", "_Tls"]


@dataclass(frozen=True)
class SlowLimits:
    """Time-outs of what no request waits for, in ms."""

    connect_ms: float = 2000.0
    ping_ms: float = 2000.0
    commit_ms: float = 5000.0
    population_ms: float = 60_000.0
    clear_ms: float = 60_000.0


class RedisStore:
    """The FeatureStore role on a server; made by `connect`.

    Reads, claims and puts go through the circuit; commits and the rest do not: their callers have no
    deadline and try again in their own time. A write that the server refuses (it is read-only, or full)
    says nothing of reads, so the circuit stays as it is. `health` counts. After StoreTimeout or StoreUnavailable
    from `commit` its effect is unknown, so read `applied`; should the server come to execute it only
    after another commit went through, it is void (WATCH).
    """

    def __init__(
        self, lanes: Lanes[Driver], layout: Layout, address: StoreUrl, timeout_ms: float,
        slow: SlowLimits, circuit: Circuit, clock: Callable[[], float], on_close: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        self._lanes = lanes
        self._layout = layout
        self._address = address
        self._timeout_ms = timeout_ms
        self._slow = slow
        self._clock = clock
        self._on_close = on_close
        self._keep: Callable[[StoreHealth], Awaitable[None]] | None = None
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
        keep: Callable[[StoreHealth], Awaitable[None]] | None = None,
    ) -> RedisStore:
        """A store at `url`; its first call opens a connection (`ping` tells whether it can).

        Args:
            url: see `parse_store_url`.
            prefix: what every key starts with; stores with different prefixes do not see each other.
            timeout_ms: limit of a read, claim or put, in ms.
            circuit: None takes the defaults.
            connections: at most so many are used at a time; more calls wait within their time-out.
            clock: seconds, monotonic; for the circuit and latencies.
            on_close: called by `close` in a thread, after the connections have ended.
            keep: brings a server of one's own back, until cancelled.

        Raises:
            StoreUnavailable: the URL cannot be used.
            ValueError: the prefix cannot be used.
        """
        address, slow, layout = parse_store_url(url), slow or SlowLimits(), Layout(prefix)
        lanes = Lanes(_maker(address), _is_clean, connections, slow.connect_ms / 1000.0)
        store = cls(lanes, layout, address, timeout_ms, slow, circuit or Circuit(), clock, on_close)
        store._keep = keep
        return store

    def __repr__(self) -> str:
        return f"RedisStore({str(self._address)!r}, prefix={self._layout.prefix!r})"

    @property
    def address(self) -> StoreUrl:
        """Where the server is."""
        return self._address

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        """All keys and the applied offset, in one MGET."""
        with self._verdict(timeout_ms):
            self.health.reads += 1
            started = self._clock()
            values = await self._one("read", commands.read_rows(self._layout, keys), timeout_ms)
            self.health.read_ms.append((self._clock() - started) * 1000.0)
            return Snapshot(self._offset(values[0]), tuple(values[1:]))

    async def claim(self, key: str, value: bytes, ttl_s: int) -> bytes | None:
        """Sets `key` unless it is there; gives what was there."""
        check_ttl(key, ttl_s)
        with self._verdict(writes=True):
            command = commands.set_row(self._layout, key, value, ttl_s, only_if_absent=True)
            found: bytes | None = await self._one("claim", command)
            return found

    async def put(self, key: str, value: bytes, ttl_s: int) -> None:
        """Sets one key."""
        check_ttl(key, ttl_s)
        with self._verdict(writes=True):
            await self._one("put", commands.set_row(self._layout, key, value, ttl_s))

    async def commit(self, commit: Commit) -> None:
        """Applies a batch in one MULTI: tables are deleted first, then cells are set.

        Deleting tables looks through all cells, in steps between which the server answers others.
        """
        check_commit(commit)
        await self._run("commit", lambda connection: self._commit(connection, commit), self._slow.commit_ms)

    async def population(self) -> dict[tuple[str, str], bytes]:
        """Every population cell, read in steps: no snapshot while another writer commits."""
        fields = await self._run(
            "population", lambda connection: scan_cells(connection, self._layout, b"*"), self._slow.population_ms
        )
        return {split_field(name): value for name, value in fields.items()}

    async def clear(self) -> None:
        """Removes every key under the prefix, the applied offset first, so that no read mixes old and none."""
        await self._run("clear", lambda connection: clear_keys(connection, self._layout), self._slow.clear_ms)

    async def ping(self) -> None:
        """Returns when the server answers."""
        await self._one("ping", (b"PING",), self._slow.ping_ms)

    async def raw(self, sent: Sequence[Command], timeout_ms: float) -> list[Any]:
        """Sends commands as they are, in one go, past prefix and circuit: for measurements beside the service."""
        return await self._run("raw", lambda connection: exchange(connection, *sent), timeout_ms)

    async def keep_server(self) -> None:
        """Brings an embedded server back whenever it is gone for good, until cancelled; returns when it is not ours."""
        if self._keep is not None:
            await self._keep(self.health)

    async def close(self) -> None:
        """Ends the connections, and the server when it is embedded; every later call raises StoreUnavailable."""
        await self._lanes.close()
        if self._on_close is not None:
            await asyncio.to_thread(self._on_close)

    async def _commit(self, connection: Driver, commit: Commit) -> None:
        watch, look = (b"WATCH", self._layout.applied), (b"GET", self._layout.applied)
        *_, applied = await exchange(connection, watch, *(() if commit.before is None else (look,)))
        if commit.before is not None and not fits(commit, self._offset(applied)):
            raise RedisError(f"{applied!r} events are applied, not {commit.before}")
        dead: list[bytes] = []
        for start in map(table_start, commit.tables):
            found = await scan_cells(connection, self._layout, glob_of(start))
            dead += (name for name in found if name.startswith(start))
        *_, results = await exchange(connection, *commands.transaction(self._layout, commit, dead))
        if results is None:
            raise RedisError("another writer moved the applied offset meanwhile")
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _one(self, what: str, command: Command, timeout_ms: float | None = None) -> Any:
        async def work(connection: Driver) -> Any:
            try:
                return (await exchange(connection, command))[0]
            except ResponseError as error:  # a whole answer, so the connection is as good as before
                return error

        return await self._run(what, work, self._timeout_ms if timeout_ms is None else timeout_ms)

    async def _run(self, what: str, work: Callable[[Driver], Awaitable[T]], timeout_ms: float) -> T:
        """The one edge at which the driver's errors become ours."""
        try:
            async with asyncio.timeout(timeout_ms / 1000.0), self._lanes.lane() as connection:
                result = await work(connection)
            if isinstance(result, ResponseError):
                raise result
            return result
        except (TimeoutError, RedisTimeoutError) as error:
            text = f"{what}: {self._address} did not answer in {timeout_ms:g} ms"
            self.health.last_error = text
            raise StoreTimeout(text) from error
        except (RedisError, OSError) as error:
            text = f"{what}: {self._address}: {self._address.hide(str(error)) or type(error).__name__}"
            self.health.last_error = text
            raise StoreUnavailable(text) from error

    @contextmanager
    def _verdict(self, timeout_ms: float | None = None, *, writes: bool = False) -> Iterator[None]:
        """Asks the circuit, and tells it and `health` how the call ended."""
        if not self.circuit.allow(self._clock()):
            self.health.refused += 1
            raise StoreUnavailable(f"circuit open after: {self.health.last_error}")
        try:
            yield
        except StoreTimeout:
            self.health.timeouts += 1
            # A caller that could wait for less than the store may take has found out nothing about it.
            hasty = timeout_ms is not None and timeout_ms < self._timeout_ms
            (self.circuit.forget if hasty else self.circuit.failure)(self._clock())
            raise
        except StoreUnavailable as error:
            self.health.failures += 1
            refused_write = writes and isinstance(error.__cause__, ResponseError)
            (self.circuit.forget if refused_write else self.circuit.failure)(self._clock())
            raise
        except BaseException:
            self.circuit.forget(self._clock())
            raise
        self.circuit.success(self._clock())

    def _offset(self, value: bytes | None) -> int | None:
        if value is None:
            return None
        if not value.isdigit():
            key = self._layout.applied.decode()
            raise StoreUnavailable(f"{self._address}: {key} holds {value[:40]!r}, not a number")
        return int(value)


class _AtHand:
    """What a connection has read beyond the answer that was waited for."""

    _parser: Any

    def answers_at_hand(self, most: int) -> list[Any]:
        """See `Wire`."""
        reader, found = self._parser._reader, list[Any]()
        while len(found) < most and (answer := reader.gets(False)) is not NOT_ENOUGH_DATA:
            if isinstance(answer, RedisError):
                raise answer
            found.append(answer)
        return found


class _Unix(_AtHand, UnixDomainSocketConnection):
    """Of a server on this machine."""


class _Tcp(_AtHand, Connection):
    """Of a server elsewhere."""


class _Tls(_AtHand, SSLConnection):
    """The same, encrypted."""


def _maker(address: StoreUrl) -> Callable[[], Driver]:
    # RESP 2 keeps answers plain; our own time-outs are the only ones, and nothing is retried.
    options: dict[str, Any] = {
        "db": address.db, "username": address.username, "password": address.password,
        "protocol": 2, "socket_timeout": None, "socket_connect_timeout": None,
    }  # fmt: skip
    if "driver_info" in signature(AbstractConnection.__init__).parameters:
        # Else each connection looks for the driver's version among the installed packages: a millisecond of the loop.
        options["driver_info"] = Connection().driver_info
    if address.scheme == "unix":
        return lambda: _Unix(path=address.path, **options)
    options |= {"host": address.host, "port": address.port}
    if address.scheme == "rediss":
        options |= dict(address.tls)
        return lambda: _Tls(**options)
    return lambda: _Tcp(**options)


async def _is_clean(connection: Driver) -> bool:
    """Whether it is open and nothing has come in that nobody asked for, such as its end."""
    writer = connection._writer  # the driver's own look sees an end, but not a reset
    if writer is None or writer.is_closing():
        return False
    look = getattr(connection, "can_read", None) or connection.can_read_destructive  # its name before redis 8
    try:
        return not await look()
    except (RedisError, OSError):
        return False
