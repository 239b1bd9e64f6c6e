"""One paired run over a log: both versions score the same decisions in turns, as they were known at the time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from features.events import RankingEvent
from features.label_config import LabelSettings, OutcomeWindows
from features.outcomes import ACCEPTED, WINDOWS
from features.scored import reached_draw
from training.evaluate import slices_of
from training.gates.arms import Arm, Followers, anew
from training.gates.evidence import (
    CLICKS,
    COMPLETIONS,
    DISMISSALS,
    REUSE,
    Floats,
    Judged,
    OfferEvidence,
    OutcomeEvidence,
    Pair,
)
from training.labels import LABELS, Labels, completed, dismissed, reused
from training.metrics import ndcg
from training.off_policy.gather import LogView, read_view
from training.queries import Query, build_query, candidate_pairs, moment_of, positions_of
from training.replay import Decision, Replay

K = 10
MAX_SLICES = 200

WORTH: Mapping[str, Callable[[int], bool]] = {
    CLICKS: lambda bits: bool(bits & ACCEPTED),
    COMPLETIONS: completed,
    DISMISSALS: dismissed,
    REUSE: reused,
}
"""By outcome, whether an offer had it; a click counts even where it was an accident: that is the point."""


@dataclass(frozen=True)
class CollectPlan:
    """What to judge.

    Args:
        since_s: decisions before it are only learned from.
        limit: no more decisions are judged.
        requests, repeats: how many of them are timed, and how often each.
        clock: seconds; CPU time of this thread by default: what others do on the machine is no version's cost.
    """

    since_s: float
    limit: int | None = None
    requests: int = 4000
    repeats: int = 2
    labels: LabelSettings = LABELS
    outcomes: OutcomeWindows = WINDOWS
    clock: Callable[[], float] = time.thread_time


@dataclass
class Collected:
    """Figures by row, as they come; `Pair`s of them once all have.

    Args:
        excluded: decisions that could not be judged, by reason.
        schemas: judged rankings by the feature schema they name.
    """

    view: LogView
    quality: list[tuple[float, float]] = field(default_factory=list)
    quality_clusters: list[str] = field(default_factory=list)
    slices: dict[str, list[int]] = field(default_factory=dict)
    weighed: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {name: [] for name in WORTH})
    clusters: list[str] = field(default_factory=list)
    times_ms: list[tuple[float, float]] = field(default_factory=list)
    offers: list[tuple[float, float, bool, str]] = field(default_factory=list)
    excluded: Counter[str] = field(default_factory=Counter)
    schemas: Counter[str] = field(default_factory=Counter)
    wanted_withheld: list[int] = field(default_factory=lambda: [0, 0])
    offered: int = 0
    decisions: int = 0

    @property
    def labels(self) -> Labels:
        """Of the whole log."""
        return self.view.labels

    def judged_quality(self) -> Judged:
        """NDCG by query, with the largest slices."""
        largest = sorted(self.slices.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_SLICES]
        named = {name: np.array(rows, np.int64) for name, rows in largest}
        return Judged(_pair(self.quality), _codes(self.quality_clusters), named)

    def latency(self) -> Pair:
        """Milliseconds by request."""
        return _pair(self.times_ms)

    def outcome_evidence(self) -> OutcomeEvidence:
        """What followed, weighed by place."""
        codes = _codes(self.clusters)
        weighed = {name: Judged(_pair(rows), codes) for name, rows in self.weighed.items()}
        return OutcomeEvidence(weighed, sum(done for *_, done, _ in self.offers))

    def offer_evidence(self) -> OfferEvidence:
        """Scores of what was seen."""
        done = np.array([each[2] for each in self.offers], np.bool_)
        return OfferEvidence(_pair([each[:2] for each in self.offers]), done, _codes([each[3] for each in self.offers]))


def collect(
    logdir: Path, arms: tuple[Arm, Arm], plan: CollectPlan, progress: Callable[[int], None] = lambda _: None
) -> Collected:
    """Plays the log and asks candidate and baseline at each decision from a date on.

    Raises:
        LogError: there is no such log.
    """
    view = read_view(logdir, plan.labels, plan.outcomes)
    found = Collected(view)
    replay = Replay(logdir, None, view.labels.learn_from_own_actions, progress, plan.outcomes, follow=Followers(arms))
    for decision in replay:
        if decision.event.time_s < plan.since_s:
            continue
        if plan.limit is not None and found.decisions >= plan.limit:
            break
        found.decisions += 1
        _take(found, decision, replay, arms, plan)
    return found


def _take(found: Collected, decision: Decision, replay: Replay, arms: tuple[Arm, Arm], plan: CollectPlan) -> None:
    catalogue = replay.state.catalogue
    built = build_query(decision, found.labels, catalogue)
    if isinstance(built, str):
        found.excluded[built] += 1
        if built != "no_positive":
            return
    event = decision.event
    if isinstance(event, RankingEvent):
        found.schemas[event.versions.get("schema", "none")] += 1
    query = _without_positive(decision, found.labels, replay) if isinstance(built, str) else built
    if query is None:
        return
    scores = _asked(found, query, arms, plan)
    _note_outcomes(found, query, scores)
    if not isinstance(built, str):
        _note_quality(found, query, scores)


def _without_positive(decision: Decision, labels: Labels, replay: Replay) -> Query | None:
    """A query for what else there is to see: times, dismissals, offers that came to nothing."""
    pairs = candidate_pairs(decision, replay.state.catalogue)
    if not pairs:
        return None
    places = positions_of(decision.event)
    unseen = labels.unseen.get((decision.event.user, decision.event.id), frozenset())
    return Query(
        decision,
        moment_of(decision, pairs, replay.state.catalogue),
        grades=np.zeros(len(pairs)),
        positions=np.array([places.get(pair, 0) for pair in pairs], np.int64),
        unseen=np.array([pair in unseen for pair in pairs]),
        missing=0,
    )


def _asked(found: Collected, query: Query, arms: tuple[Arm, Arm], plan: CollectPlan) -> tuple[Floats, Floats]:
    """Scores of both, and the time of each: in turns, so that neither always finds the caches warm."""
    timed = len(found.times_ms) < plan.requests
    scores: list[Floats] = [np.zeros(0), np.zeros(0)]
    best = [np.inf, np.inf]
    first = len(found.times_ms) % 2
    for turn in range(plan.repeats if timed else 1):
        for place in (0, 1) if (first + turn) % 2 == 0 else (1, 0):
            asked = anew(query)
            started = plan.clock()
            _, scores[place] = arms[place].score(asked)
            best[place] = min(best[place], plan.clock() - started)
    if timed and min(best) > 0.0:
        found.times_ms.append((best[0] * 1000.0, best[1] * 1000.0))
    return scores[0], scores[1]


def _note_quality(found: Collected, query: Query, scores: tuple[Floats, Floats]) -> None:
    missed = np.ones(query.missing)
    figures = [ndcg(each, query.grades, K, missed=missed) for each in scores]
    if figures[0] is None or figures[1] is None:
        found.excluded["no_positive"] += 1
        return
    for name in slices_of(query):
        found.slices.setdefault(name, []).append(len(found.quality))
    found.quality.append((figures[0], figures[1]))
    found.quality_clusters.append(query.cluster)


def _note_outcomes(found: Collected, query: Query, scores: tuple[Floats, Floats]) -> None:
    event = query.decision.event
    if not isinstance(event, RankingEvent):
        return
    _note_withheld(found, event, scores)
    bits = found.labels.bits.get((event.user, event.id), {})
    pairs = list(zip(query.moment.actions, query.moment.targets, strict=True))
    rows = [row for row in np.flatnonzero(query.offered & ~query.unseen).tolist() if pairs[row] in bits]
    each = [bits[pairs[row]] for row in rows]
    discounts = [_discounts(scored)[rows] for scored in scores]
    for name, had in WORTH.items():
        marks = np.array([had(bit) for bit in each], np.float64)
        found.weighed[name].append((float(marks @ discounts[0]), float(marks @ discounts[1])))
    found.clusters.append(event.user)
    for row, bit in zip(rows, each, strict=True):
        found.offers.append((float(scores[0][row]), float(scores[1][row]), completed(bit), event.user))


def _note_withheld(found: Collected, event: RankingEvent, scores: tuple[Floats, Floats]) -> None:
    """Counts places of the list that each version would have given to what was withheld in the end."""
    allowed, shown = np.array(reached_draw(event), np.bool_), len(event.items)
    found.offered += shown
    if len(allowed) != len(scores[0]) or allowed.all():
        return
    for place, scored in enumerate(scores):
        found.wanted_withheld[place] += int((~allowed[np.argsort(-scored, kind="stable")[:shown]]).sum())


def _discounts(scores: Floats) -> Floats:
    """1 / log2(1 + rank) of each candidate within the first K; equal scores share their ranks."""
    ranks = np.asarray(rankdata(-scores), np.float64)
    return np.asarray(np.where(ranks <= K, 1.0 / np.log2(1.0 + ranks), 0.0), np.float64)


def _pair(rows: list[tuple[float, float]]) -> Pair:
    found = np.array(rows, np.float64).reshape(-1, 2)
    return Pair(found[:, 0].copy(), found[:, 1].copy())


def _codes(names: list[str]) -> NDArray[np.int64]:
    codes: dict[str, int] = {}
    return np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)
