"""The running service without HTTP: who does what is decided here, how is decided by its owners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from features.applier import Applier
from features.catalogue import ActionSpec
from features.log import LogWriter
from features.store import FeatureStore
from ranker.answers import EventAnswer, RankAnswer
from ranker.catalogue_desk import CatalogueDesk
from ranker.decisions import Decisions
from ranker.idempotency import Answers
from ranker.intake import Intake
from ranker.model_watch import ModelWatch
from ranker.online import OnlineReader
from ranker.ranking_desk import RankingDesk
from ranker.release.errors import RegistryError
from ranker.release.registry import Registry
from ranker.types import RankRequest
from ranker.user_desk import UserDesk


class Counting(Protocol):
    """What counts drops for metrics."""

    def drops(self) -> Mapping[str, int]:
        """Candidates removed by `stage:reason`."""
        ...


class SecondStatus(Protocol):
    """What knows of the second stage."""

    def status(self) -> Mapping[str, Any]:
        """Figures for metrics; empty where there is no second stage."""
        ...


@dataclass(frozen=True)
class Owners:
    """The parts that answer, each for its own.

    Args:
    """

    decisions: Decisions
    answers: Answers
    intake: Intake
    catalogue: CatalogueDesk
    users: UserDesk
    reader: OnlineReader
    applier: Applier
    log: LogWriter
    store: FeatureStore
    registry: Registry
    counting: Counting
    watch: ModelWatch
    second: SecondStatus


@dataclass(frozen=True)
class OnlineService:
    """`ranker.answers.Service` over its owners."""

    owners: Owners
    ranking: RankingDesk

    async def rank(
        self, request: RankRequest, body: bytes, *, caller: str, explain: bool, arrived_ms: float
    ) -> RankAnswer:
        """Ranks, logs and answers; the same id with another body is a Conflict."""
        return await self.ranking.rank(request, body, caller=caller, explain=explain, arrived_ms=arrived_ms)

    async def rank_offline(self, request: RankRequest, *, explain: bool) -> RankAnswer:
        """Ranks for an offline job."""
        return await self.ranking.rank_offline(request, explain=explain)

    async def ingest(self, events: Sequence[bytes]) -> list[EventAnswer]:
        """One answer per raw event, in order; what was accepted is durable."""
        return await self.owners.intake.take(events)

    async def put_actions(self, specs: Mapping[str, ActionSpec], *, replace_all: bool = False) -> int:
        """Adds or replaces entries, or the whole catalogue."""
        return await self.owners.catalogue.put(specs, replace_all)

    async def delete_action(self, action: str) -> None:
        """Withdraws an entry. Raises NotFound."""
        await self.owners.catalogue.delete(action)

    def action(self, action: str) -> ActionSpec:
        """One entry. Raises NotFound."""
        return self.owners.catalogue.get(action)

    def actions(self) -> Mapping[str, ActionSpec]:
        """All entries in order."""
        return dict(self.owners.catalogue.live.catalogue.items())

    async def user(self, user: str) -> dict[str, Any]:
        """What is held about a user. Raises NotFound or ServiceUnavailable."""
        return await self.owners.users.show(user)

    async def forget(self, user: str) -> None:
        """Forgets a user."""
        await self.owners.users.forget(user)

    def models(self) -> dict[str, Any]:
        """The registry's versions and what serves; what cannot be read, or be put in its place, says why."""
        registry = self.owners.registry
        try:
            active = registry.active()
        except RegistryError:
            active = None
        versions = [_manifest(registry, version) for version in registry.versions()]
        watch = self.owners.watch
        refused = {"refused": dict(zip(("version", "error"), watch.refused, strict=True))} if watch.refused else {}
        return {"active": active, "versions": versions, "serving": watch.serving, **refused}

    def not_ready(self) -> dict[str, str]:
        """What is missing to rank well, by part."""
        applier = self.owners.applier
        if applier.generation is not None:
            return {}
        lost = applier.counts.last_error
        if not applier.filling and lost is not None:
            return {"store": f"cannot be reached: {lost}"}
        return {"store": f"is being filled from the log: {applier.filling} of {self.owners.log.durable} events so far"}

    def status(self) -> dict[str, Any]:
        """Numbers for metrics."""
        owners = self.owners
        health = getattr(owners.store, "health", None)
        counts = owners.applier.counts
        store = {
            name: getattr(health, name)
            for name in ("reads", "timeouts", "failures", "refused", "restarts")
            if hasattr(health, name)
        }
        return {
            "drops": dict(owners.counting.drops()),
            "log": {"end": owners.log.end, "durable": owners.log.durable, "unlogged": owners.decisions.unlogged},
            "applier": {
                "applied": owners.applier.applied,
                "lag_ms": owners.applier.lag_ms(),
                "events": counts.events,
                "batches": counts.batches,
                "retries": counts.retries,
                "crashes": counts.crashes,
                "rebuilds": counts.rebuilds,
                "take_overs": counts.take_overs,
                "skipped": dict(owners.applier.skipped),
            },
            "models": {"loads": owners.watch.loads, "failures": owners.watch.failures},
            "second": dict(owners.second.status()),
            "catalogue": {"actions": len(owners.catalogue.live.catalogue)},
            "population": {"tables": len(owners.applier.population.tables)},
            "store": {
                **store,
                "unreadable_rows": owners.reader.unreadable,
                "circuit": getattr(health, "circuit_state", "closed"),
            },
            "answers": {"unkept": owners.answers.unkept},
        }


def _manifest(registry: Registry, version: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.to_builtins(registry.manifest(version))
    except RegistryError as error:
        return {"version": version, "error": str(error)}
    return found
