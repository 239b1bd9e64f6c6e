"""What the service answers: the JSON of each call, and the role that the HTTP layer calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from features.catalogue import ActionSpec
from ranker.types import RankRequest


class AnswerItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An offered action; `reasons` only when explained. `target` is null for an action about nothing."""

    action: str
    target: str | None
    position: int
    score: float
    propensity: float
    reasons: list[str] | None = None


class Verdict(msgspec.Struct, frozen=True):
    """What a stage said of a candidate it removed."""

    stage: str
    action: str
    target: str | None
    reason: str


class RankAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a 200 of `POST /v1/rank`."""

    id: str
    items: list[AnswerItem]
    traffic: str
    versions: dict[str, str]
    degraded: list[str]
    timings_ms: dict[str, float]
    verdicts: list[Verdict] | None = None
    candidates: dict[str, int] | None = None


class EventAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one posted event; `reason` and `detail` when it was refused."""

    id: str | None
    status: Literal["accepted", "duplicate", "refused"]
    reason: str | None = None
    detail: str | None = None


class Ranks(Protocol):
    """What answers rankings. Raises the errors of ranker.errors and nothing else on purpose."""

    async def rank(
        self, request: RankRequest, body: bytes, *, caller: str, explain: bool, arrived_ms: float
    ) -> RankAnswer:
        """Ranks, logs and answers. `body` as received makes the same id with another body a Conflict."""
        ...

    async def rank_offline(self, request: RankRequest, *, explain: bool) -> RankAnswer:
        """Ranks for an offline job: no deadline, traffic `replay`, `context.time` is the clock; leaves no trace."""
        ...


class Workers(Protocol):
    """The processes that answer, where there are several."""

    def live(self) -> int:
        """How many rank without withholding anything because they may lag."""
        ...

    def counts(self) -> Mapping[str, Any]:
        """What the others have counted since they started, added up; `http` is a tally of theirs."""
        ...


class Service(Ranks, Protocol):
    """The running service without HTTP. Raises the errors of ranker.errors and nothing else on purpose."""

    async def ingest(self, events: Sequence[bytes]) -> list[EventAnswer]:
        """Takes raw JSON events, one answer each in order; returns once those accepted are durable.

        Raises:
            ServiceUnavailable: nothing was acknowledged.
        """
        ...

    async def put_actions(self, specs: Mapping[str, ActionSpec], *, replace_all: bool = False) -> int:
        """Adds or replaces entries, or the whole catalogue; in effect and durable when it returns. Gives how many."""
        ...

    async def delete_action(self, action: str) -> None:
        """Withdraws an entry. Raises NotFound."""
        ...

    def action(self, action: str) -> ActionSpec:
        """One entry. Raises NotFound."""
        ...

    def actions(self) -> Mapping[str, ActionSpec]:
        """All entries in order."""
        ...

    async def user(self, user: str) -> dict[str, Any]:
        """What is held about a user. Raises NotFound, or ServiceUnavailable when the store cannot be read."""
        ...

    async def forget(self, user: str) -> None:
        """Forgets a user: durable and in effect when it returns."""
        ...

    def models(self) -> dict[str, Any]:
        """`{"active": version or null, "versions": [manifest, …], "serving": …}`."""
        ...

    def not_ready(self) -> dict[str, str]:
        """What is missing to rank, by part; empty when ready."""
        ...

    def status(self) -> dict[str, Any]:
        """Numbers for metrics: log end and durable offset, applied offset, catalogue size, store counters, circuit."""
        ...
