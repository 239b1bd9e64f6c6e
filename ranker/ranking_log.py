"""A decision as the log keeps it: all that is needed to judge it and to learn from it later."""

from __future__ import annotations

from base64 import b64encode

import numpy as np

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
    if pool is None:
        return None
    rows = pool.candidates
    return list(zip(rows.actions, rows.targets, pool.scores.tolist(), strict=True))


def _features(pool: Pool | None) -> str | None:
    if pool is None or pool.features is None:
        return None
    return b64encode(np.ascontiguousarray(pool.features, dtype="<f4").tobytes()).decode("ascii")
