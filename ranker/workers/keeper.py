"""The service of the keeper: what it acknowledges is known to every follower by then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from features.catalogue import ActionSpec
from ranker.answers import EventAnswer, RankAnswer, Service
from ranker.inference.engine_stats import shares
from ranker.types import RankRequest
from ranker.workers.counts import Counts, added, with_totals
from ranker.workers.desk import Desk
from ranker.workers.spawning import Crew


@dataclass(frozen=True)
class KeeperService:
    """`ranker.answers.Service`: the keeper's own, and a wait for the followers after what changes something.

    Args:
        inner: the service of this process.
    """

    inner: Service
    desk: Desk
    crew: Crew

    async def rank(
        self, request: RankRequest, body: bytes, *, caller: str, explain: bool, arrived_ms: float
    ) -> RankAnswer:
        """Ranks, logs and answers; followers hear of the ranking a moment later."""
        return await self.inner.rank(request, body, caller=caller, explain=explain, arrived_ms=arrived_ms)

    async def rank_offline(self, request: RankRequest, *, explain: bool) -> RankAnswer:
        """Ranks for an offline job."""
        return await self.inner.rank_offline(request, explain=explain)

    async def ingest(self, events: Sequence[bytes]) -> list[EventAnswer]:
        """One answer per raw event, in order; what was accepted is durable, and binds in every worker."""
        answers = await self.inner.ingest(events)
        await self.desk.barrier.passed()
        return answers

    async def put_actions(self, specs: Mapping[str, ActionSpec], *, replace_all: bool = False) -> int:
        """Adds or replaces entries, or the whole catalogue, in every worker."""
        put = await self.inner.put_actions(specs, replace_all=replace_all)
        await self.desk.barrier.passed()
        return put

    async def delete_action(self, action: str) -> None:
        """Withdraws an entry from every worker. Raises NotFound."""
        await self.inner.delete_action(action)
        await self.desk.barrier.passed()

    def action(self, action: str) -> ActionSpec:
        """One entry. Raises NotFound."""
        return self.inner.action(action)

    def actions(self) -> Mapping[str, ActionSpec]:
        """All entries in order."""
        return self.inner.actions()

    async def user(self, user: str) -> dict[str, Any]:
        """What is held about a user."""
        return await self.inner.user(user)

    async def forget(self, user: str) -> None:
        """Forgets a user, in every worker."""
        try:
            await self.inner.forget(user)
        finally:
            self.desk.forgot(user)
        await self.desk.barrier.passed()

    def models(self) -> dict[str, Any]:
        """Versions, and what serves here; each worker follows the active one by itself."""
        return self.inner.models()

    def not_ready(self) -> dict[str, str]:
        """What is missing to rank well, by part; a worker that is missing is no such part."""
        return self.inner.not_ready()

    def status(self) -> dict[str, Any]:
        """Numbers for metrics: what all workers dropped, and how the followers are."""
        status, others = self.inner.status(), self.counts()
        both = added({"drops": status["drops"]}, {"drops": others.get("drops", {})})
        status["drops"] = both["drops"]
        status["log"] = {**status["log"], "unlogged": status["log"]["unlogged"] + others.get("unlogged", 0)}
        status["answers"] = {**status["answers"], "unkept": status["answers"]["unkept"] + others.get("unkept", 0)}
        status["second"] = second = with_totals(status["second"], others.get("second", {}))
        if second.get("engine"):
            second["engine"] = {**second["engine"], **shares(second["engine"])}
        lags_ms = {str(worker): lag_ms for worker, lag_ms in sorted(self.desk.lags_ms().items())}
        status["workers"] = {"live": self.live(), "restarts": self.crew.restarts, "feed_lag_ms": lags_ms}
        return status

    def live(self) -> int:
        """Workers that rank without withholding anything, this one included."""
        return 1 + len(self.desk.live_workers())

    def counts(self) -> Counts:
        """Those of all followers added up, of such that have ended too."""
        return reduce(added, self.desk.reports.values(), self.desk.retired)
