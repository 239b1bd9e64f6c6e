"""Plays against a running service, where nothing changes by it.

Without waiting: `POST /v1/rank/batch`, for which the context's time is the clock. At a pace: `POST /v1/rank` with
traffic `probe` and a deadline, one after another. Both read what the service knows now.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

import msgspec

from features.events import COUNTED_TRAFFIC, RankingEvent
from features.log import read_log
from ranker.answers import RankAnswer
from ranker.client import ApiError
from ranker.types import MAX_K, RankRequest
from training.identity import identity
from training.off_policy.words import slice_names
from training.replaying.in_process import PlayPlan
from training.replaying.pace import Pace
from training.replaying.played import Played

BATCH = 200


class Asks(Protocol):
    """The client of a service (ranker.client), as far as it is needed here."""

    def rank(self, request: RankRequest, /) -> RankAnswer:
        """One answer; raises ApiError."""
        ...

    def rank_batch(self, requests: Iterable[RankRequest], /) -> Iterator[RankAnswer | ApiError]:
        """An answer or a problem for each, in order."""
        ...


def play_over_http(
    plan: PlayPlan, client: Asks, pace: Pace, progress: Callable[[int], None] = lambda _: None
) -> Iterator[Played]:
    """Answers in the order of the log.

    Raises:
        LogError: there is no such log.
        ClientError: the service does not answer.
    """
    rankings = islice(_rankings(plan, progress), plan.limit)
    if math.isinf(pace.speed):
        while chunk := list(islice(rankings, BATCH)):
            requests = [_request(event, plan, batch=True) for event, _ in chunk]
            for (event, slices), answer in zip(chunk, client.rank_batch(requests), strict=True):
                yield _played(event, slices, answer, None, 0.0)
        return
    for event, slices in rankings:
        late_ms = pace.wait(event.time_s)
        started_s = time.perf_counter()
        asked = _asked(client, _request(event, plan, batch=False))
        yield _played(event, slices, asked, (time.perf_counter() - started_s) * 1000.0, late_ms)


def _asked(client: Asks, request: RankRequest) -> RankAnswer | ApiError:
    try:
        return client.rank(request)
    except ApiError as error:
        return error


def _rankings(plan: PlayPlan, progress: Callable[[int], None]) -> Iterator[tuple[RankingEvent, tuple[str, ...]]]:
    met: set[bytes] = set()
    users: set[str] = set()
    for count, (_, event) in enumerate(read_log(plan.logdir)):
        if count % 1000 == 0:
            progress(count)
        if not isinstance(event, RankingEvent) or event.traffic not in COUNTED_TRAFFIC or identity(event) in met:
            continue
        met.add(identity(event))
        known = event.user in users
        users.add(event.user)
        if event.time_s >= plan.since_s and event.items:
            yield event, (*slice_names(event, known), f"traffic={event.traffic}")


def _request(event: RankingEvent, plan: PlayPlan, *, batch: bool) -> RankRequest:
    """The request that led to a ranking; a longer list, so that more of the order can be compared."""
    context = event.context
    if batch and context.time is None:
        context = msgspec.structs.replace(context, time=event.time)
    size = max(len(event.items), len(event.pool or ()))
    more: dict[str, Any] = {} if batch else {"traffic": "probe", "budget_ms": plan.budget_ms}
    return RankRequest(user=event.user, session=event.session, context=context, k=max(1, min(size, MAX_K)), **more)


def _played(
    event: RankingEvent, slices: tuple[str, ...], answer: RankAnswer | ApiError, wall_ms: float | None, late_ms: float
) -> Played:
    if isinstance(answer, ApiError):
        return Played(event, late_ms=late_ms, slices=slices, error=str(answer))
    pairs = tuple((item.action, item.target) for item in answer.items)
    return Played(
        event,
        order=pairs,
        scores={pair: item.score for pair, item in zip(pairs, answer.items, strict=True)},
        latency_ms=answer.timings_ms.get("total", math.nan) if wall_ms is None else wall_ms,
        late_ms=late_ms,
        degraded=tuple(answer.degraded),
        versions=answer.versions,
        slices=slices,
    )
