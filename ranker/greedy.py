"""The order without exploration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ranker.types import Ranking


def greedy_order(ranking: Ranking) -> list[int]:
    """Candidate rows by score, highest first; equal scores by prior, then by action and target.

    Names decide last, and not the position in the list, so that the same candidates in another order get the
    same answer.
    """
    scores, priors = ranking.scores, ranking.prior
    assert scores is not None and priors is not None, "the light stage runs first"
    order = (-scores).argsort(kind="stable")
    by_score = scores.take(order)
    if not np.count_nonzero(by_score[1:] == by_score[:-1]):
        return _rows(order)
    order = np.lexsort((-priors, -scores))
    by_score, by_prior = scores[order], priors[order]
    ties = (by_score[1:] == by_score[:-1]) & (by_prior[1:] == by_prior[:-1])
    if not np.count_nonzero(ties):
        return _rows(order)
    rows = ranking.candidates
    names = list(zip(rows.actions, [target or "" for target in rows.targets], strict=True))
    by_name = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    return _rows(by_name[np.lexsort((-priors[by_name], -scores[by_name]))])


def _rows(order: NDArray[np.int64]) -> list[int]:
    rows: list[int] = order.tolist()
    return rows
