"""What is held about a user, and forgetting it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from features import rows
from features.applier import Applier
from features.batch import unpack_row
from features.cells import ACCEPTED, COMPLETED, DISMISSED, OFFERED, SEEN, SELF
from features.errors import StoreError, UnreadableRow
from features.events import ForgetEvent, encode_event, format_time, from_seconds
from features.log import LogWriter
from features.rows import User
from features.store import FeatureStore
from features.store_marks import GENERATION
from ranker.clock import Clock
from ranker.errors import NotFound, ServiceUnavailable
from ranker.idempotency import Answers
from ranker.intake import append, durable
from ranker.own_writes import OwnWrites

READ_MS = 1000.0
CATCH_UP_MS = 100.0
FORGET_S = 1.5
_COUNTS = {
    "offered": OFFERED,
    "seen": SEEN,
    "accepted": ACCEPTED,
    "completed": COMPLETED,
    "dismissed": DISMISSED,
    "self": SELF,
}


@dataclass
class UserDesk:
    """Reads and forgets users.

    Args:
        forget_s: how long forgetting may take to come into effect before it is said to be under way.
    """

    store: FeatureStore
    log: LogWriter
    applier: Applier
    answers: Answers
    clock: Clock
    new_id: Callable[[], str]
    own: OwnWrites
    forget_s: float = FORGET_S

    async def show(self, user: str) -> dict[str, Any]:
        """Profile, counters by action, history and sessions.

        Raises:
            NotFound: nothing is held.
            ServiceUnavailable: the store cannot be read, or lacks what was written of the user.
        """
        key = rows.user_key(user)
        needed = await self.own.caught_up(user, CATCH_UP_MS)
        try:
            snapshot = await self.store.read([GENERATION, key], READ_MS)
            generation = self.applier.generation
            if generation is None or snapshot.rows[0] != generation.encode():
                raise ServiceUnavailable("the feature store is being filled")
            if snapshot.applied is None or snapshot.applied < needed:
                raise ServiceUnavailable(f"what was written of user {user!r} is not in effect yet")
            row = unpack_row(key, snapshot.rows[1]) if snapshot.rows[1] is not None else None
        except (StoreError, UnreadableRow) as error:
            raise ServiceUnavailable(f"what is held about user {user!r} cannot be read: {error}") from error
        if not isinstance(row, User) or self.clock.now_s() - row.row.updated_s > rows.USER_LIFE_S:
            raise NotFound(f"nothing is held about user {user!r}", "$.user")
        return {"user": user, **_readable(row)}

    async def forget(self, user: str) -> None:
        """Forgets a user: durable and in effect when it returns.

        Raises:
            ServiceUnavailable: it is not durable; or it is, and comes into effect once the store is back.
        """
        event = ForgetEvent(id=self.new_id(), time=from_seconds(self.clock.now_s()), user=user)
        end = append(self.log, [encode_event(event)]) + 1
        self.own.wrote(user, end)
        await durable(self.log, end)
        self.applier.notify()
        started_ms = self.clock.monotonic_ms()
        await self.answers.forget(user)
        left_s = self.forget_s - (self.clock.monotonic_ms() - started_ms) / 1000.0
        if not await self.applier.wait_applied(end, left_s):
            raise ServiceUnavailable(f"forgetting user {user!r} is durable and takes effect once the store is back")


def _readable(user: User) -> dict[str, Any]:
    row = user.row
    return {
        "updated": format_time(from_seconds(row.updated_s)),
        "profile": row.profile,
        "counters": {action: _counts(user, action) for action in user.counters},
        "history": [{"action": done.action, "time": format_time(from_seconds(done.time_s))} for done in row.history],
        "sessions": len(row.sessions),
        "rankings": len(row.rankings),
    }


def _counts(user: User, action: str) -> dict[str, int]:
    cell = user.counters.cell(action)
    assert cell is not None
    return {name: int(cell[column]) for name, column in _COUNTS.items() if cell[column]}
