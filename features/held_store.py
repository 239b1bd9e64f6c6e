"""A store as its one writer left it: every read and every retry makes sure that it still is."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from features.applier_settings import ApplierCounts, ApplierSettings
from features.batch import unpack_rows
from features.errors import StoreError, StoreLost
from features.state import Row
from features.store import Commit, FeatureStore, Snapshot
from features.store_marks import GENERATION

_KEPT = ("u:", "s:")
"""Of the rows of users and sessions, the next batch is likely to need the same again."""


@dataclass
class HeldStore:
    """Holds rows of the log's first `applied` events under a generation.

    Rows used last stay here unpacked: nobody else writes them, and a store that is another than the one
    that was left takes no commit.
    """

    store: FeatureStore
    generation: str
    applied: int
    settings: ApplierSettings
    counts: ApplierCounts
    _kept: OrderedDict[str, Row] = field(default_factory=OrderedDict, repr=False)

    async def check(self) -> None:
        """Raises StoreLost unless the store is as it was left."""
        self._own(await self._read([]))

    async def rows(self, keys: list[str]) -> dict[str, Row]:
        """Rows by key, without those that are not there.

        Raises:
            StoreLost: the store is not as it was left.
            StoreError: it does not answer.
            UnreadableRow: bytes are no row.
        """
        kept = {key: self._kept[key] for key in keys if key in self._kept}
        asked = [key for key in keys if key not in kept]
        if not asked:
            return kept
        snapshot = await self._read(asked)
        self._own(snapshot)
        return kept | unpack_rows(asked, snapshot.rows[1:])

    def keep(self, rows: Mapping[str, Row], changed: Iterable[str]) -> None:
        """Takes rows as a batch has left them, for the next ones.

        Args:
            changed: keys of rows that it set or deleted.
        """
        for key in changed:
            if key.startswith(_KEPT):
                self._kept.pop(key, None)
                if key in rows:
                    self._kept[key] = rows[key]
        while len(self._kept) > self.settings.kept_rows:
            self._kept.popitem(last=False)

    async def commit(self, commit: Commit) -> None:
        """Sends the same content until the store has it: rows are whole, so twice is as good as once.

        Raises:
            StoreLost: the store lost its rows meanwhile, and must not get these.
        """
        delay_s = self.settings.back_off_s[0]
        commit = replace(commit, before=self.applied)
        while not await self._sent(commit):
            delay_s = await back_off(delay_s, self.settings)
        self.applied = commit.applied

    async def _sent(self, commit: Commit) -> bool:
        try:
            await self.store.commit(commit)
            return True
        except StoreError as error:
            self.counts.retries += 1
            self.counts.last_error = str(error)
        try:
            snapshot = await self._read([])
        except StoreError:
            return False
        # A commit without an answer may have been executed all the same.
        if snapshot.applied == commit.applied and snapshot.rows[0] == self.generation.encode():
            return True
        self._own(snapshot)
        return False

    async def _read(self, keys: list[str]) -> Snapshot:
        return await self.store.read([GENERATION, *keys], self.settings.read_timeout_ms)

    def _own(self, snapshot: Snapshot) -> None:
        if snapshot.rows[0] != self.generation.encode():
            raise StoreLost("it is another one, or came back empty")
        if snapshot.applied != self.applied:
            raise StoreLost(f"it holds {snapshot.applied} events, not {self.applied}")


async def back_off(delay_s: float, settings: ApplierSettings) -> float:
    """Waits, and gives the next delay."""
    await asyncio.sleep(delay_s)
    return min(2.0 * delay_s, settings.back_off_s[1])
