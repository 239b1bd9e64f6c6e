"""Rankings for who asks: with an id answered once, without a trace for a probe, with no deadline for an offline job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ranker.answers import RankAnswer
from ranker.clock import Clock
from ranker.decisions import PROBE, Decisions, Due
from ranker.degraded import Degraded
from ranker.idempotency import Answers, Asked
from ranker.pipeline import deadline_ms
from ranker.types import RankRequest


@dataclass(frozen=True)
class RankingDesk:
    """`ranker.answers.Ranks` over its owners.

    Args:
        budgets_ms: by priority, for a request that does not say how long it waits.
        new_id: makes ids of rankings.
    """

    decisions: Decisions
    answers: Answers
    clock: Clock
    budgets_ms: Mapping[str, float]
    new_id: Callable[[], str]

    async def rank(
        self, request: RankRequest, body: bytes, *, caller: str, explain: bool, arrived_ms: float
    ) -> RankAnswer:
        """Ranks, logs and answers; the same id with another body is a Conflict."""
        due = Due(arrived_ms, deadline_ms(request, arrived_ms, self.budgets_ms), explain)
        decisions = self.decisions
        if request.id is None or request.traffic == PROBE:
            return await decisions.decide(request, request.id or self.new_id(), due)
        request_id = request.id

        async def compute(verified: bool) -> RankAnswer:
            return await decisions.decide(request, request_id, due, *(() if verified else (Degraded.ID_UNVERIFIED,)))

        wait_s = max(0.0, due.deadline_ms - self.clock.monotonic_ms()) / 1000.0
        asked = Asked(caller, request.user, request_id, body, wait_s)
        answer, repeated = await self.answers.give(asked, compute)
        return await decisions.still_safe(request, answer, due) if repeated else answer

    async def rank_offline(self, request: RankRequest, *, explain: bool) -> RankAnswer:
        """Ranks for an offline job."""
        due = Due(self.clock.monotonic_ms(), math.inf, explain)
        return await self.decisions.replay(request, request.id or self.new_id(), due)
