"""A decision as the log keeps it: all that is needed to judge it and to learn from it later."""

from __future__ import annotations

from base64 import b64encode
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from features.events import RankedItem, RankingEvent, from_seconds
from ranker.types import Item, Pool, Ranking


def ranking_event(ranking: Ranking) -> RankingEvent:
    """The event of a finished ranking; the vectors are kept on explored traffic only."""
    return RankingEvent(
        id=ranking.request_id,
        time=from_seconds(ranking.now_s),
        user=ranking.request.user,
        session=ranking.request.session,
        context=ranking.request.context,
        items=[_item(item) for item in ranking.items],
        pool=_pool(ranking.pool),
        withheld=_withheld(ranking.pool),
        deleted=_deleted(ranking),
        greedy=_greedy(ranking) if ranking.traffic == "explore" else [],
        features=_features(ranking.pool) if ranking.traffic == "explore" else None,
        seen_offset=ranking.known.seen_offset if ranking.known is not None else None,
        traffic=ranking.traffic,
        versions=ranking.versions,
        degraded=[str(reason) for reason in ranking.degraded],
    )


def _item(item: Item) -> RankedItem:
    return RankedItem(
        action=item.action, target=item.target, position=item.position, score=item.score, propensity=item.propensity
    )


def _pool(pool: Pool | None) -> list[tuple[str, str | None, float]] | None:
    """What reached the draw."""
    if pool is None:
        return None
    rows = zip(pool.candidates.actions, pool.candidates.targets, pool.scores.tolist(), strict=True)
    return list(compress(rows, _drawn(pool).tolist()))


def _withheld(pool: Pool | None) -> list[tuple[int, str, str | None, float]]:
    """What was scored and did not reach the draw, with its place among the scored."""
    if pool is None:
        return []
    rows = pool.candidates
    return [
        (row, rows.actions[row], rows.targets[row], float(pool.scores[row]))
        for row in np.flatnonzero(~_drawn(pool)).tolist()
    ]


def _deleted(ranking: Ranking) -> list[int]:
    """Rows of the logged pool that left after the draw."""
    size = np.count_nonzero(_drawn(ranking.pool)) if ranking.pool is not None else 0
    return sorted(set(range(size)).difference(ranking.order)) if len(ranking.order) < size else []


def _greedy(ranking: Ranking) -> list[int]:
    """The greedy order where scores alone do not tell it: priors decide then, which the log does not have."""
    if ranking.scores is None:
        return []
    scores = ranking.scores[list(ranking.greedy)]
    return list(ranking.greedy) if np.count_nonzero(scores[1:] == scores[:-1]) else []


def _features(pool: Pool | None) -> str | None:
    if pool is None or pool.features is None:
        return None
    drawn = np.ascontiguousarray(pool.features[_drawn(pool)], dtype="<f4")
    return b64encode(drawn.tobytes()).decode("ascii")


def _drawn(pool: Pool) -> NDArray[np.bool_]:
    """None marked: a stage failed before the draw, which nothing reached."""
    return pool.drawn if pool.drawn is not None else np.zeros(len(pool.candidates), np.bool_)
