"""light, with its candidates judged before and remembered after.

The vector of a candidate depends on which others are scored with it. So what may not be offered anyway
leaves before the model sees it, and what the model saw is kept whole for the log: what leaves later
(an exclusion, a flag that changed in between) had its share in the vectors of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ranker.judges import Judge, apply_before_draw
from ranker.stages.light import Light
from ranker.types import Pool, Ranking


@dataclass(frozen=True)
class ScoredPool:
    """The light stage; explore asks the same judges again, and fails closed where one cannot answer.

    Args:
        judges: those that need no scores.
    """

    light: Light
    judges: Sequence[Judge] = ()

    @property
    def name(self) -> str:
        """The light stage's word in the arrow."""
        return self.light.name

    async def run(self, ranking: Ranking) -> Ranking:
        """The ranking with scores, and its pool."""
        return _remembered(await self.light.run(self._judged(ranking)))

    def recover(self, ranking: Ranking, error: Exception) -> Ranking:
        """As light does."""
        return _remembered(self.light.recover(self._judged(ranking), error))

    def late(self, ranking: Ranking) -> Ranking:
        """As light does."""
        return _remembered(self.light.late(self._judged(ranking)))

    def _judged(self, ranking: Ranking) -> Ranking:
        for judge in self.judges:
            try:
                # With what it could not judge as it should: that is dropped here, so explore would not know of it.
                ranking = apply_before_draw(judge, ranking)
            except Exception:
                # Explore asks it again and offers nothing when it fails there too.
                continue
        return ranking


def _remembered(ranking: Ranking) -> Ranking:
    assert ranking.scores is not None, "light always scores"
    return ranking.but(pool=Pool(ranking.candidates, ranking.scores, ranking.features))
