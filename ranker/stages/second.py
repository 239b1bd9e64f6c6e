"""second: the best candidates of the light stage, scored again by what the user did; else the light order stands."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ranker.degraded import Degraded
from ranker.types import Ranking

COLD = "second:cold"
"""A reason, and no degradation: the user has no history, so there is nothing that the light stage does not know."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rescored:
    """What the second stage found.

    Args:
        scores: [candidates], of all: those it was not asked about come after those that it was.
    """

    version: str
    scores: NDArray[np.float64]


class SecondRanker(Protocol):
    """Whoever has the model."""

    async def rescore(self, ranking: Ranking) -> Rescored | Degraded | str | None:
        """New scores; or why there are none: a degradation, a reason, or None where there is no second stage."""
        ...


class NoSecond:
    """Where no version has a second stage."""

    async def rescore(self, ranking: Ranking) -> None:  # noqa: ARG002  # there is nothing to ask
        """Nothing."""
        return


@dataclass(frozen=True)
class Second:
    """Replaces scores, and those of the pool: the draw, and so the log's propensities, are by these."""

    ranker: SecondRanker
    name: str = "second"

    async def run(self, ranking: Ranking) -> Ranking:
        """The ranking with better scores, or with the reason why not."""
        if ranking.features is None or not len(ranking.candidates):
            return ranking
        found = await self.ranker.rescore(ranking)
        if isinstance(found, Degraded):
            return ranking.because(found)
        if isinstance(found, str):
            return ranking.but(notes=(*ranking.notes, found))
        return ranking if found is None else _rescored(ranking, found)

    def recover(self, ranking: Ranking, _error: Exception) -> Ranking:
        """The light order."""
        return ranking.because(Degraded.SECOND_ERROR)

    def late(self, ranking: Ranking) -> Ranking:
        """The light order; said only where there would have been another."""
        return ranking if isinstance(self.ranker, NoSecond) else ranking.because(Degraded.SECOND_BUDGET)


def _rescored(ranking: Ranking, found: Rescored) -> Ranking:
    if found.scores.shape != (len(ranking.candidates),) or not np.isfinite(found.scores).all():
        _log.error("second version %s gave scores that cannot be used", found.version)
        return ranking.because(Degraded.SECOND_ERROR)
    versions = {**ranking.versions, "second": found.version}
    pool = ranking.pool.scored(found.scores) if ranking.pool is not None else None
    return ranking.but(scores=found.scores, versions=versions, pool=pool)
