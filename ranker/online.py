"""Reads what is known for a request from the online store, and says how far it can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from features import rows
from features.applier import Applier
from features.batch import unpack_row
from features.errors import StoreError, StoreTimeout, UnreadableRow
from features.known import Known
from features.rows import SessionRow, User
from features.state import updated_s
from features.store import FeatureStore, Snapshot
from features.store_marks import GENERATION
from ranker.degraded import Degraded
from ranker.types import RankRequest

Answer = tuple[Known, tuple[Degraded, ...]]


@dataclass
class OnlineReader:
    """The context stage's KnowledgeReader.

    Args:
        now_s: Unix seconds; rows older than their life are absent.
        lag_limit_ms: when the applier is behind by more, personal rows are not used.
        unreadable: rows so far that were no rows.
    """

    store: FeatureStore
    applier: Applier
    now_s: Callable[[], float]
    lag_limit_ms: float = 2000.0
    unreadable: int = field(default=0, init=False)

    async def read(self, request: RankRequest, timeout_ms: float) -> Answer:
        """Population tables always; personal rows unless the store or the applier is not up to it."""
        if self.applier.generation is None:
            return self._without(Degraded.FEATURES_UNAVAILABLE)
        if self.applier.lag_ms() > self.lag_limit_ms:
            return self._without(Degraded.FEATURES_STALE)
        keys = [rows.user_key(request.user), rows.session_key(request.user, request.session)]
        try:
            snapshot = await self.store.read([GENERATION, *keys], timeout_ms)
        except StoreTimeout:
            return self._without(Degraded.FEATURES_TIMEOUT)
        except StoreError:
            return self._without(Degraded.FEATURES_UNAVAILABLE)
        return self._known(snapshot, keys)

    def _known(self, snapshot: Snapshot, keys: list[str]) -> Answer:
        generation = self.applier.generation
        if generation is None or snapshot.rows[0] != generation.encode() or snapshot.applied is None:
            self.applier.suspect()
            return self._without(Degraded.FEATURES_UNAVAILABLE)
        degraded: list[Degraded] = []
        view = self.applier.population.at(snapshot.applied)
        if not view.exact:
            degraded.append(Degraded.FEATURES_STALE)
        try:
            user, session = (self._row(key, row) for key, row in zip(keys, snapshot.rows[1:], strict=True))
        except UnreadableRow:
            self.unreadable += 1
            return self._without(Degraded.FEATURES_UNAVAILABLE)
        assert user is None or isinstance(user, User)
        assert session is None or isinstance(session, SessionRow)
        return Known(view, user, session, snapshot.applied), tuple(degraded)

    def _row(self, key: str, packed: bytes | None) -> User | SessionRow | None:
        if packed is None:
            return None
        row = unpack_row(key, packed)
        assert isinstance(row, User | SessionRow)
        return row if self.now_s() - updated_s(row) <= rows.life_s(key) else None

    def _without(self, reason: Degraded) -> Answer:
        return Known(self.applier.population.at()), (reason,)
