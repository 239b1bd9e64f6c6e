"""freshness: what an action is about must still be there and recent enough, by the clock as it is now."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from features.events import Entity, to_seconds
from ranker.clock import Clock
from ranker.compiled import CompiledCatalogue, Rows
from ranker.judges import LastVerdicts, Mask, Refusals, Verdicts, apply_after_draw, first_after, instant_s
from ranker.traits import EXPIRES, TARGET_AGE
from ranker.types import Ranking

Times = NDArray[np.float64]


@dataclass(frozen=True)
class FreshnessJudge:
    """Refuses with the first reason that applies: `excluded`, `target_gone`, `target_stale`, `expired`.

    A target is gone when the context lists entities of its type and not this one. A target without a time
    has no age: it is in the context now, which is all that is known, so it stays.
    """

    catalogue: CompiledCatalogue
    clock: Clock
    name: str = "freshness"
    _last: LastVerdicts = field(default_factory=LastVerdicts, repr=False, compare=False)

    def judge(self, ranking: Ranking) -> Verdicts:
        """A verdict per candidate, by what is so now."""
        now_s, version = instant_s(ranking, self.clock), self.catalogue.version
        said = self._last.recall(ranking.candidates, now_s, version)
        if said is not None:
            return said
        rows = self.catalogue.rows(ranking.candidates.actions)
        refusals = Refusals(len(rows))
        excluded = frozenset(ranking.request.exclude)
        if excluded:
            refusals.add(_mask([action in excluded for action in ranking.candidates.actions]), "excluded")
        targets, entities = ranking.candidates.targets, ranking.request.context.entities
        if gone := _gone(targets, ranking.entities, entities):
            refusals.add(_mask([target in gone for target in targets]), "target_gone")
        until_s = self.catalogue.next_expiry_s(rows, now_s)
        traits = self.catalogue.traits(rows)
        if traits & TARGET_AGE:
            stale_s = self._stale_s(rows, targets, entities)
            until_s = min(until_s, first_after(now_s, stale_s))
            refusals.add(now_s > stale_s, "target_stale")
        if traits & EXPIRES:
            refusals.add(self.catalogue.column("expires_s", rows) <= now_s, "expired")
        return self._last.keep(refusals.verdicts(), until_s, ranking.candidates, version)

    def _stale_s(self, rows: Rows, targets: Sequence[str | None], entities: Sequence[Entity]) -> Times:
        """The last instant at which each target is recent enough."""
        limits_s = self.catalogue.column("max_target_age_s", rows)
        return np.where(limits_s > 0.0, _times_s(targets, entities) + limits_s, np.inf)


@dataclass(frozen=True)
class Freshness:
    """Asks the judge again after the draw, and deletes what it refuses now."""

    judge: FreshnessJudge
    name: str = "freshness"

    async def run(self, ranking: Ranking) -> Ranking:
        """The ranking without what has become stale."""
        return apply_after_draw(self.judge, ranking)


def _mask(values: list[bool]) -> Mask:
    return np.array(values, np.bool_)


def _gone(targets: Sequence[str | None], there: Container[str], entities: Sequence[Entity]) -> set[str]:
    """Targets of a type that the context lists, but not among those listed."""
    absent = {target for target in targets if target is not None and target not in there}
    prefixes = tuple({f"{entity.type}:" for entity in entities}) if absent else ()
    return {target for target in absent if target.startswith(prefixes)}


def _times_s(targets: Sequence[str | None], entities: Sequence[Entity]) -> Times:
    """When each target is from, in Unix seconds; infinitely late where unknown."""
    times = {entity.target: to_seconds(entity.time) for entity in entities if entity.time is not None}
    return np.array([times.get(target or "", np.inf) for target in targets], np.float64)
