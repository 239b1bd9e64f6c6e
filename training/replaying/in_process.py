"""Plays in this process: state as of each ranking's `seen_offset`, the logged candidates, the version's own order.

What was withheld or deleted then stays so: the flags of that time are what the log says of them. Where scoring takes
longer than the deadline the service would have answered by the priors, and so does this.
"""

from __future__ import annotations

import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from features.events import RankingEvent
from features.label_config import OutcomeWindows
from features.outcomes import WINDOWS
from features.priors import prior_of
from features.registry import COLUMNS, FINGERPRINT
from features.scored import reached_draw
from ranker.degraded import Degraded
from training.evaluate import slices_of
from training.gates.arms import Arm, has_vectors
from training.off_policy.targets import service_order
from training.queries import Query, candidate_pairs, moment_of
from training.replay import Decision, Replay
from training.replaying.pace import Pace
from training.replaying.played import Played


@dataclass(frozen=True)
class PlayPlan:
    """What to play, and how.

    Args:
        since_s: rankings before it are only learned from.
        limit: no more are played.
        budget_ms: deadline of each.
        clock: seconds, monotonic, for latency.
    """

    logdir: Path
    since_s: float
    limit: int | None = None
    budget_ms: float = 100.0
    outcomes: OutcomeWindows = WINDOWS
    clock: Callable[[], float] = time.perf_counter


def play_here(
    plan: PlayPlan, arm: Arm, pace: Pace, progress: Callable[[int], None] = lambda _: None
) -> Iterator[Played]:
    """Answers in the order in which the log's rankings had read their features.

    Raises:
        LogError: there is no such log.
    """
    replay = Replay(plan.logdir, progress=progress, windows=plan.outcomes, follow=arm.follow)
    played = 0
    for decision in replay:
        event = decision.event
        if not isinstance(event, RankingEvent) or event.time_s < plan.since_s:
            continue
        if plan.limit is not None and played >= plan.limit:
            return
        played += 1
        late_ms = pace.wait(event.time_s)
        yield _answer(plan, decision, event, arm, replay, late_ms)


def _answer(
    plan: PlayPlan, decision: Decision, event: RankingEvent, arm: Arm, replay: Replay, late_ms: float
) -> Played:
    started_s = plan.clock()
    pairs = candidate_pairs(decision, replay.state.catalogue)
    moment = moment_of(decision, pairs, replay.state.catalogue)
    size = len(pairs)
    query = Query(decision, moment, np.zeros(size), np.zeros(size, np.int64), np.zeros(size, np.bool_), 0)
    slices = (*slices_of(query),)
    if not pairs:
        return Played(event, late_ms=late_ms, degraded=(str(Degraded.EMPTY),), slices=slices)
    vectors, scores = arm.score(query)
    priors = np.asarray(prior_of(moment), np.float64)
    degraded: tuple[str, ...] = ()
    if (plan.clock() - started_s) * 1000.0 > plan.budget_ms:
        scores, degraded = priors, (str(Degraded.LIGHT_MISSING),)
    left = _left(event, size)
    kept = [pairs[row] for row in left]
    order = service_order(kept, scores[left], priors[left], moment)
    return Played(
        event,
        order=tuple(kept[row] for row in order),
        scores=dict(zip(kept, scores[left].tolist(), strict=True)),
        latency_ms=(plan.clock() - started_s) * 1000.0,
        late_ms=late_ms,
        degraded=degraded,
        versions={"schema": FINGERPRINT, "light": arm.name},
        slices=slices,
        vectors=_vectors(event, vectors, size),
    )


def _left(event: RankingEvent, size: int) -> NDArray[np.int64]:
    """Rows of the scored set that could be shown: they reached the draw and were not deleted after it."""
    allowed = np.flatnonzero(np.array(reached_draw(event), np.bool_)) if event.pool is not None else np.arange(size)
    if event.pool is None or len(allowed) != len(event.pool) or (len(allowed) and allowed[-1] >= size):
        return np.arange(size)
    deleted = [row for row in event.deleted if row < len(allowed)]
    return np.delete(allowed, deleted)


def _vectors(
    event: RankingEvent, vectors: NDArray[np.float32], size: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
    """The logged vectors of the pool and the recomputed ones; None where the log has none of this schema."""
    if event.features is None or event.pool is None or not has_vectors(vectors):
        return None
    if event.versions.get("schema") != FINGERPRINT:
        return None
    reached = np.array(reached_draw(event), np.bool_)
    try:
        logged = np.frombuffer(b64decode(event.features, validate=True), "<f4")
    except (Base64Error, ValueError):
        return None
    if len(reached) != size or logged.size != int(reached.sum()) * len(COLUMNS):
        return None
    return logged.reshape(-1, len(COLUMNS)), vectors[reached]
