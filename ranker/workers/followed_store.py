"""A store whose rows are never ahead of the tables that go with them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from features.errors import StoreTimeout
from features.store import Commit, FeatureStore, Snapshot
from ranker.workers.followed import Followed

LONGEST_MS = 1000.0


@dataclass(frozen=True)
class FollowedStore:
    """The keeper's store, read by a follower. Only the keeper writes rows."""

    store: FeatureStore
    followed: Followed

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        """All keys and the applied offset, once the tables include all that this offset does.

        The keeper sends a batch's cells before it commits the batch, so they are on their way at worst.

        Raises:
            StoreTimeout: they did not come in time.
        """
        started_s = asyncio.get_running_loop().time()
        snapshot = await self.store.read(keys, timeout_ms)
        if snapshot.applied is None or snapshot.applied <= self.followed.population.offset:
            return snapshot
        spent_s = asyncio.get_running_loop().time() - started_s
        left_s = (LONGEST_MS if timeout_ms is None else timeout_ms) / 1000.0 - spent_s
        if not await self.followed.wait_tables(snapshot.applied, max(0.0, left_s)):
            raise StoreTimeout(f"the tables of this worker are behind the store's {snapshot.applied} events")
        return snapshot

    async def claim(self, key: str, value: bytes, ttl_s: int) -> bytes | None:
        """Sets `key` unless it is there; gives what was there."""
        return await self.store.claim(key, value, ttl_s)

    async def put(self, key: str, value: bytes, ttl_s: int) -> None:
        """Sets one key."""
        await self.store.put(key, value, ttl_s)

    async def ping(self) -> None:
        """Returns when the store answers."""
        await self.store.ping()

    async def close(self) -> None:
        """Ends this process's connections."""
        await self.store.close()

    async def population(self) -> dict[tuple[str, str], bytes]:
        """Every population cell."""
        return await self.store.population()

    async def commit(self, commit: Commit) -> None:
        """Only the keeper commits."""
        raise AssertionError(f"a follower commits {commit.applied}")

    async def clear(self) -> None:
        """Only the keeper clears."""
        raise AssertionError("a follower clears the store")
