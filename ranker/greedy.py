"""The order without exploration."""

from __future__ import annotations

import numpy as np

from ranker.types import Ranking


def greedy_order(ranking: Ranking) -> list[int]:
    """Candidate rows by score, highest first; equal scores by prior, then by action and target.

    Names decide last, and not the position in the list, so that the same candidates in another order get the
    same answer.
    """
    scores, priors = ranking.scores, ranking.prior
    assert scores is not None and priors is not None, "the light stage runs first"
    order = np.lexsort((-priors, -scores))
    ties = (np.diff(scores[order]) == 0.0) & (np.diff(priors[order]) == 0.0)
    if not ties.any():
        return [int(row) for row in order]
    names = sorted(range(len(scores)), key=lambda row: _name(ranking, row))
    by_name = np.array(names, np.int64)
    return [int(row) for row in by_name[np.lexsort((-priors[by_name], -scores[by_name]))]]


def _name(ranking: Ranking, row: int) -> tuple[str, str]:
    return ranking.candidates.actions[row], ranking.candidates.targets[row] or ""
