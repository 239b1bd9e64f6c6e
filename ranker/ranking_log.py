"""A decision as the log keeps it: all that is needed to judge it and to learn from it later."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from itertools import compress
from typing import Any

import msgspec
import numpy as np

from features.events import Audit, RankedItem, RankingEvent, from_seconds
from ranker.types import Item, Pool, Ranking


def ranking_event(ranking: Ranking) -> RankingEvent:
    """The event of a finished ranking; the vectors are kept on explored traffic only."""
    pool, explored = ranking.pool, ranking.traffic == "explore"
    drawn = None if pool is None else _drawn(pool)
    return RankingEvent(
        id=ranking.request_id,
        time=from_seconds(ranking.now_s),
        user=ranking.request.user,
        session=ranking.request.session,
        context=ranking.request.context,
        items=[_item(item) for item in ranking.items],
        pool=None if pool is None else _pool(pool, drawn),
        withheld=[] if pool is None or drawn is None else _withheld(pool, drawn),
        deleted=[] if pool is None else _deleted(ranking, len(pool.candidates) if drawn is None else sum(drawn)),
        greedy=_greedy(ranking) if explored else [],
        features=_features(pool, drawn) if explored and pool is not None else None,
        seen_offset=ranking.known.seen_offset if ranking.known is not None else None,
        traffic=ranking.traffic,
        versions=ranking.versions,
        degraded=list(map(str, ranking.degraded)),
        audit=msgspec.UNSET if ranking.audit is None else _audit(ranking.audit, ranking.items),
    )


def for_state(event: RankingEvent) -> RankingEvent:
    """The part of a ranking that state depends on: what else the log keeps is large."""
    large: dict[str, Any] = {"pool": None, "withheld": [], "deleted": [], "greedy": [], "features": None}
    return msgspec.structs.replace(event, **large, versions={}, audit=msgspec.UNSET)


def _audit(audit: Audit, items: Iterable[Item]) -> Audit:
    """Says of each text whether it is in the answer."""
    served = {(item.action, item.target) for item in items}
    texts = (msgspec.structs.replace(text, served=(text.action, text.target) in served) for text in audit.items)
    return Audit(probability=audit.probability, items=list(texts))


def _item(item: Item) -> RankedItem:
    return RankedItem(
        action=item.action, target=item.target, position=item.position, score=item.score, propensity=item.propensity
    )


def _drawn(pool: Pool) -> list[bool] | None:
    """What reached the draw, None for all of it; nothing did when none are marked: a stage failed before the draw."""
    if pool.drawn is None:
        return [False] * len(pool.candidates)
    return None if pool.drawn.all() else pool.drawn.tolist()


def _pool(pool: Pool, drawn: list[bool] | None) -> list[tuple[str, str | None, float]]:
    """What reached the draw."""
    rows = zip(pool.candidates.actions, pool.candidates.targets, pool.scores.tolist(), strict=True)
    return list(rows if drawn is None else compress(rows, drawn))


def _withheld(pool: Pool, drawn: list[bool]) -> list[tuple[int, str, str | None, float]]:
    """What was scored and did not reach the draw, with its place among the scored."""
    rows = zip(pool.candidates.actions, pool.candidates.targets, pool.scores.tolist(), drawn, strict=True)
    return [(row, action, target, score) for row, (action, target, score, reached) in enumerate(rows) if not reached]


def _deleted(ranking: Ranking, size: int) -> list[int]:
    """Rows of the logged pool [size] that left after the draw."""
    return sorted(set(range(size)).difference(ranking.order)) if len(ranking.order) < size else []


def _greedy(ranking: Ranking) -> list[int]:
    """The greedy order where scores alone do not tell it: priors decide then, which the log does not have."""
    if ranking.scores is None:
        return []
    scores = ranking.scores[list(ranking.greedy)]
    return list(ranking.greedy) if np.count_nonzero(scores[1:] == scores[:-1]) else []


def _features(pool: Pool, drawn: list[bool] | None) -> str | None:
    if pool.features is None:
        return None
    rows = np.ascontiguousarray(pool.features if drawn is None else pool.features[drawn], dtype="<f4")
    return b64encode(rows.tobytes()).decode("ascii")
