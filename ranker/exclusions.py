"""Mutual exclusions: of actions that exclude each other only the best-ranked is offered.

Judged on the scores, after safety and freshness and before the draw. The winner does not depend on the
draw, so propensities over those left stay exact; the price is that exploration never shows the loser. It is
not asked again after the draw: when a winner is deleted then, nobody takes its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ranker.compiled import CompiledCatalogue
from ranker.greedy import greedy_order
from ranker.judges import Verdicts, all_kept
from ranker.traits import GROUP
from ranker.types import Ranking


@dataclass(frozen=True)
class Exclusions:
    """A judge over `exclusive_group`s of the catalogue and groups of the policy file.

    Targets of one action do not exclude each other.

    Args:
        groups: actions of which one is offered, by configuration.
    """

    catalogue: CompiledCatalogue
    groups: Sequence[Sequence[str]] = ()
    name: str = "policy"

    def judge(self, ranking: Ranking) -> Verdicts:
        """Goes through those that are in a group, best first; each keeps the others of its groups out."""
        grouped = self._groups(ranking)
        if not grouped:
            return all_kept(len(ranking.candidates))
        keep = np.ones(len(ranking.candidates), np.bool_)
        winners: dict[tuple[str, int], str] = {}
        for row in greedy_order(ranking):
            action = ranking.candidates.actions[row]
            mine = grouped.get(action)
            if mine is None:
                continue
            keep[row] = all(winners.get(group, action) == action for group in mine)
            if keep[row]:
                winners.update(dict.fromkeys(mine, action))
        return Verdicts(keep, ["" if kept else "exclusive" for kept in keep.tolist()])

    def _groups(self, ranking: Ranking) -> dict[str, list[tuple[str, int]]]:
        """Groups by action, of those candidates that are in any."""
        groups: dict[str, list[tuple[str, int]]] = defaultdict(list)
        actions = ranking.candidates.actions
        rows = self.catalogue.rows(actions)
        codes = self.catalogue.column("group", rows) if self.catalogue.traits(rows) & GROUP else ()
        for row in np.flatnonzero(codes).tolist():
            if not groups[actions[row]]:
                groups[actions[row]].append(("catalogue", int(codes[row])))
        present = frozenset(actions) if self.groups else frozenset()
        for number, group in enumerate(self.groups):
            for action in present.intersection(group):
                groups[action].append(("policy", number))
        return dict(groups)
