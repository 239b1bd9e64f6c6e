"""A feature store in this process: for tests and offline jobs, where rows need not outlive it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from features.errors import StoreUnavailable
from features.store import Commit, Snapshot
from features.store_health import StoreHealth
from features.store_layout import check_commit, check_ttl, fits

SWEEP_AT_LEAST = 10_000


class MemoryStore:
    """The FeatureStore role over dicts; no call awaits anything, so each is atomic.

    Args:
        clock: seconds, monotonic; decides when rows expire.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rows: dict[str, tuple[bytes, float]] = {}
        self._cells: dict[tuple[str, str], bytes] = {}
        self._applied: int | None = None
        self._sweep_at = SWEEP_AT_LEAST
        self._closed = False
        self.health = StoreHealth()

    async def read(
        self,
        keys: Sequence[str],
        timeout_ms: float | None = None,  # noqa: ARG002  # nothing here takes time
    ) -> Snapshot:
        """All keys and the applied offset."""
        self._check_open()
        self.health.reads += 1
        return Snapshot(self._applied, tuple(self._get(key) for key in keys))

    async def commit(self, commit: Commit) -> None:
        """Applies a batch: tables are deleted first, then cells are set."""
        self._check_open()
        check_commit(commit)
        if not fits(commit, self._applied):
            raise StoreUnavailable(f"{self._applied} events are applied, not {commit.before}")
        for key, row in commit.rows.items():
            if row is None:
                self._rows.pop(key, None)
            else:
                self._put(key, *row)
        if commit.tables:
            self._delete_tables(frozenset(commit.tables))
        for cell, value in commit.cells.items():
            if value is None:
                self._cells.pop(cell, None)
            else:
                self._cells[cell] = bytes(value)
        self._applied = commit.applied

    async def population(self) -> dict[tuple[str, str], bytes]:
        """Every population cell."""
        self._check_open()
        return dict(self._cells)

    async def clear(self) -> None:
        """Removes everything."""
        self._check_open()
        self._rows.clear()
        self._cells.clear()
        self._applied = None

    async def claim(self, key: str, value: bytes, ttl_s: int) -> bytes | None:
        """Sets `key` unless it is there; gives what was there."""
        self._check_open()
        check_ttl(key, ttl_s)
        found = self._get(key)
        if found is None:
            self._put(key, value, ttl_s)
        return found

    async def put(self, key: str, value: bytes, ttl_s: int) -> None:
        """Sets one key."""
        self._check_open()
        check_ttl(key, ttl_s)
        self._put(key, value, ttl_s)

    async def ping(self) -> None:
        """Returns unless the store is closed."""
        self._check_open()

    async def close(self) -> None:
        """From here on every call raises StoreUnavailable."""
        self._closed = True

    def _get(self, key: str) -> bytes | None:
        row = self._rows.get(key)
        if row is None:
            return None
        if row[1] <= self._clock():
            del self._rows[key]
            return None
        return row[0]

    def _put(self, key: str, value: bytes, ttl_s: int) -> None:
        self._rows[key] = (bytes(value), self._clock() + ttl_s)
        if len(self._rows) >= self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        now = self._clock()
        self._rows = {key: row for key, row in self._rows.items() if row[1] > now}
        self._sweep_at = max(SWEEP_AT_LEAST, 2 * len(self._rows))  # so that a put costs O(1) on average

    def _delete_tables(self, tables: frozenset[str]) -> None:
        self._cells = {cell: value for cell, value in self._cells.items() if cell[0] not in tables}

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
