"""eligibility: what an action needs of the context, judged for all candidates at once.

Needs fail closed: an unknown surface, locale, region or app version meets no condition, and a version that
is not numbers and dots counts as unknown. An action about an entity needs a target among the context's
entities, of one of its types.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranker.compiled import CompiledCatalogue, Rows
from ranker.conditions import NO_CONDITION
from ranker.judges import Refusals, Verdicts
from ranker.traits import TARGET
from ranker.types import Ranking


@dataclass(frozen=True)
class Eligibility:
    """Drops with the first reason that applies: `withdrawn`, `off`, `expired`, `surface`, `locale`, `region`,
    `app_version`, `permission`, `target_missing`, `target_type`."""

    catalogue: CompiledCatalogue
    name: str = "eligibility"

    async def run(self, ranking: Ranking) -> Ranking:
        """The ranking with those that can be offered here."""
        verdicts = self.judge(ranking)
        return ranking.keep(verdicts.keep, self.name, verdicts.reasons)

    def judge(self, ranking: Ranking) -> Verdicts:
        """A verdict per candidate."""
        refusals = Refusals(len(ranking.candidates))
        rows = self.catalogue.rows(ranking.candidates.actions)
        self.catalogue.refuse(refusals, rows, ranking.request.context, ranking.now_s)
        self._refuse_targets(refusals, rows, ranking)
        return refusals.verdicts()

    def _refuse_targets(self, refusals: Refusals, rows: Rows, ranking: Ranking) -> None:
        """A target that an action needs: there at all, and of a type the action is about."""
        if not self.catalogue.traits(rows) & TARGET:
            return
        codes = self.catalogue.column("entity", rows).tolist()
        conditions = self.catalogue.dimensions["entity"].conditions
        there = ranking.targets_by_type
        fitting = {
            code: {target for kind in conditions[code] for target in there.get(kind, ())}
            for code in set(codes)
            if code != NO_CONDITION
        }
        targets = ranking.candidates.targets
        unfit = [
            code != NO_CONDITION and target not in fitting[code] for code, target in zip(codes, targets, strict=True)
        ]
        if any(unfit):
            refused, missing = np.array(unfit), np.array([target not in ranking.entities for target in targets])
            refusals.add(refused & missing, "target_missing")
            refusals.add(refused, "target_type")
