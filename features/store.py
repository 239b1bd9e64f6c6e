"""The role of a feature store: packed rows of users, read in one go with the offset they reflect.

Keys are short ASCII strings made by `features.rows` (`u:…`, `s:…`, `r:…`, `i:…`); a store adds its
own prefix. Values are opaque bytes. Every key has a time to live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Snapshot:
    """Rows as they were at one moment.

    Args:
        applied: number of log events whose effects the rows hold; None when the store has never been filled.
        rows: one packed row per key asked for, in order; None where there is none.
    """

    applied: int | None
    rows: tuple[bytes | None, ...]


ABSENT = -1
"""As `Commit.before`: the store has never been filled."""


@dataclass(frozen=True)
class Commit:
    """What one batch of events changed; a store makes all of it visible at once, or nothing.

    Args:
        applied: number of log events that are in effect afterwards.
        rows: packed rows to set, with their time to live in seconds; None deletes.
        cells: population cells to set by (table key, action); None deletes the cell.
        tables: population tables to delete whole.
        before: number of log events that must be in effect before, or ABSENT; else nothing changes and
            StoreUnavailable is raised. A server that died may be back with an older snapshot, or with nothing.
            None takes the store as it is.
    """

    applied: int
    rows: Mapping[str, tuple[bytes, int] | None] = field(default_factory=dict)
    cells: Mapping[tuple[str, str], bytes | None] = field(default_factory=dict)
    tables: Sequence[str] = ()
    before: int | None = None


class FeatureStore(Protocol):
    """Packed rows, population cells and remembered answers.

    Every method raises StoreTimeout or StoreUnavailable, never a driver's own error, and never waits
    longer than the store's time-out (or `timeout_ms` where given).
    """

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        """All keys and the applied offset, consistent with each other (one MGET)."""
        ...

    async def commit(self, commit: Commit) -> None:
        """Applies a batch atomically (one MULTI)."""
        ...

    async def population(self) -> dict[tuple[str, str], bytes]:
        """Every population cell by (table key, action); for start-up."""
        ...

    async def clear(self) -> None:
        """Removes all that this service put there; for a rebuild."""
        ...

    async def claim(self, key: str, value: bytes, ttl_s: int) -> bytes | None:
        """Sets `key` unless it is there; gives what was there, or None when the claim succeeded."""
        ...

    async def put(self, key: str, value: bytes, ttl_s: int) -> None:
        """Sets one key outside the batches (remembered answers)."""
        ...

    async def ping(self) -> None:
        """Returns when the store answers."""
        ...

    async def close(self) -> None:
        """Releases connections, and the server when it is embedded."""
        ...
