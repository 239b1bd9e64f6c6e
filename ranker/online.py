"""Reads what is known for a request from the online store, and says how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from features import rows
from features.batch import unpack_row
from features.errors import StoreError, StoreTimeout, UnreadableRow
from features.known import Known
from features.population import Population
from features.rows import SessionRow, User
from features.state import updated_s
from features.store import FeatureStore, Snapshot
from features.store_marks import GENERATION
from ranker.degraded import Degraded
from ranker.types import RankRequest

Answer = tuple[Known, tuple[Degraded, ...]]


class Applying(Protocol):
    """What keeps a store and these tables up with the log: the applier, or what follows one."""

    @property
    def generation(self) -> str | None:
        """Name of what the store holds; None while it cannot be relied on."""
        ...

    @property
    def population(self) -> Population:
        """Tables over everyone."""
        ...

    def lag_ms(self) -> float:
        """Age of the oldest event that is not yet in effect."""
        ...

    def suspect(self) -> None:
        """Says that a read found the store other than expected."""
        ...


@dataclass
class OnlineReader:
    """The context stage's KnowledgeReader.

    Args:
        lag_limit_ms: when the applier is behind by more, personal rows are not used.
        unreadable: rows so far that were no rows.
    """

    store: FeatureStore
    applier: Applying
    lag_limit_ms: float = 2000.0
    unreadable: int = field(default=0, init=False)

    async def read(self, request: RankRequest, now_s: float, timeout_ms: float) -> Answer:
        """Population tables always; personal rows unless the store or the applier is not up to it."""
        behind = (Degraded.FEATURES_STALE,) if self.applier.lag_ms() > self.lag_limit_ms else ()
        if self.applier.generation is None:
            return self._without(Degraded.FEATURES_UNAVAILABLE, *behind)
        keys = [rows.user_key(request.user), rows.session_key(request.user, request.session)]
        try:
            # Also when it is behind: that may be because the store does not answer, and then this is said.
            snapshot = await self.store.read([GENERATION, *keys], timeout_ms)
        except StoreTimeout:
            return self._without(Degraded.FEATURES_TIMEOUT, *behind)
        except StoreError:
            return self._without(Degraded.FEATURES_UNAVAILABLE, *behind)
        return self._without(*behind) if behind else self._known(snapshot, keys, now_s)

    def _known(self, snapshot: Snapshot, keys: list[str], now_s: float) -> Answer:
        generation = self.applier.generation
        if generation is None or snapshot.rows[0] != generation.encode() or snapshot.applied is None:
            self.applier.suspect()
            return self._without(Degraded.FEATURES_UNAVAILABLE)
        degraded: list[Degraded] = []
        view = self.applier.population.at(snapshot.applied)
        if not view.exact:
            degraded.append(Degraded.FEATURES_STALE)
        try:
            user, session = (_row(key, row, now_s) for key, row in zip(keys, snapshot.rows[1:], strict=True))
        except UnreadableRow:
            self.unreadable += 1
            return self._without(Degraded.FEATURES_UNAVAILABLE)
        assert user is None or isinstance(user, User)
        assert session is None or isinstance(session, SessionRow)
        return Known(view, user, session, snapshot.applied), tuple(degraded)

    def _without(self, *reasons: Degraded) -> Answer:
        return Known(self.applier.population.at()), reasons


def _row(key: str, packed: bytes | None, now_s: float) -> User | SessionRow | None:
    if packed is None:
        return None
    row = unpack_row(key, packed)
    assert isinstance(row, User | SessionRow)
    return row if now_s - updated_s(row) <= rows.life_s(key) else None
