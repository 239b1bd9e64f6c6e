"""top actions: the first k that are left, with positions, scores and exact propensities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranker.degraded import Degraded
from ranker.propensity import GREEDY, Exploration, Floats, agreement, slot_propensities
from ranker.reasons import explain
from ranker.types import Item, Ranking


@dataclass(frozen=True)
class TopActions:
    """Fills `items`.

    Args:
        exploration: the same as the explore stage's: propensities are of what it draws.
    """

    exploration: Exploration = GREEDY
    name: str = "top actions"

    async def run(self, ranking: Ranking) -> Ranking:
        """The answer; deleting from a Plackett–Luce order leaves one, so it is exact over those left."""
        if not ranking.order:
            return ranking.because(Degraded.EMPTY)
        assert ranking.scores is not None, "the light stage runs first"
        chances = self._chances(ranking)
        shown = ranking.order[: len(chances)]
        scores = ranking.scores[list(shown)]
        reasons = explain(ranking, shown) if ranking.explain else [() for _ in shown]
        pairs = zip(shown, scores.tolist(), chances.tolist(), reasons, strict=False)
        rows = ranking.candidates
        items = tuple(
            Item(rows.actions[row], rows.targets[row], position, score, chance, why)
            for position, (row, score, chance, why) in enumerate(pairs, start=1)
        )
        return ranking.but(items=items)

    def _chances(self, ranking: Ranking) -> Floats:
        """Propensities of the slots shown."""
        epsilon, slots = self.exploration.epsilon, ranking.request.k
        if epsilon <= 0.0:
            return np.ones(min(slots, len(ranking.order)))
        assert ranking.scores is not None, "the light stage runs first"
        scores = ranking.scores[list(ranking.order)]
        agreeing = agreement(ranking.order, ranking.greedy)
        return slot_propensities(self.exploration.utilities(scores), agreeing, epsilon, slots)
