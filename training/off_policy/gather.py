"""Reads a log into slates, with the target's probabilities beside the log's.

Only what people saw under one policy counts: `live` and `explore`, the two branches of its draw, whose
propensities are those of the mixture and so belong together. Holdout, shadow, replay and probe are excluded
and counted, and so is every ranking that cannot serve, by reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from features.events import COUNTED_TRAFFIC, Event, RankingEvent
from features.known import Moment
from features.label_config import LabelSettings, OutcomeWindows
from features.log import Problems, read_log
from features.outcomes import WINDOWS
from features.registry import FINGERPRINT
from features.scored import scored_set
from ranker.propensity import GREEDY, Exploration
from training.identity import identity
from training.labels import LABELS, Labels, read_labels
from training.off_policy.errors import OffPolicyError
from training.off_policy.gathered import Gathered, Row, slices_of, stack
from training.off_policy.offers import Offer, offer_of
from training.off_policy.plackett_luce import given_above, in_slots
from training.off_policy.rewards import rewards_of
from training.off_policy.slates import Floats
from training.off_policy.targets import Target
from training.off_policy.words import context_words, slice_names
from training.queries import moment_of
from training.replay import Replay

JUDGED_TRAFFIC = frozenset({"live", "explore"})
SAME = 1e-6
"""A propensity reckoned again from the log's scores is the same within this share of it."""

_PROGRESS_EVERY = 1000
UNKNOWN_SCHEMA = "none"


@dataclass
class LogView:
    """What the first pass over a log tells."""

    labels: Labels
    problems: Problems
    excluded: Counter[str] = field(default_factory=Counter)
    schemas: Counter[str] = field(default_factory=Counter)
    windows: OutcomeWindows = WINDOWS
    last_s: float = 0.0


def read_view(logdir: Path, settings: LabelSettings = LABELS, windows: OutcomeWindows = WINDOWS) -> LogView:
    """Labels, traffic that is excluded, and the schemas that the judged rankings name.

    Raises:
        LogError: there is no such log.
    """
    problems = Problems()
    view = LogView(Labels(), problems, windows=windows)
    view.labels = read_labels(_counted(read_log(logdir, problems=problems), view), settings, windows)
    return view


def _counted(events: Iterator[tuple[int, Event]], view: LogView) -> Iterator[tuple[int, Event]]:
    for offset, event in events:
        view.last_s = max(view.last_s, event.time_s)
        if isinstance(event, RankingEvent):
            if event.traffic in JUDGED_TRAFFIC:
                view.schemas[schema_of(event)] += 1
            else:
                view.excluded[event.traffic] += 1
        yield offset, event


def schema_of(event: RankingEvent) -> str:
    """The feature schema that a ranking was made with; imports name none."""
    return event.versions.get("schema", UNKNOWN_SCHEMA)


def judged_schema(schemas: Counter[str]) -> str | None:
    """The one schema that is judged: the only one there is, else this program's; None for a log without rankings.

    Raises:
        OffPolicyError: there are several, none of them this program's.
    """
    if len(schemas) <= 1:
        return next(iter(schemas), None)
    if FINGERPRINT in schemas:
        return FINGERPRINT
    named = ", ".join(f"{count} of {name}" for name, count in schemas.most_common())
    raise OffPolicyError(f"rankings of several feature schemas, none of them this program's {FINGERPRINT}: {named}")


@dataclass
class _Gathering:
    """One pass over the decisions of a log."""

    target: Target
    exploration: Exploration
    view: LogView
    schema: str | None
    rows: list[Row] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    since_s: float = -math.inf
    before: int = 0
    unsettled: int = 0
    unexplained: int = 0

    def take(self, offset: int, event: RankingEvent, moment: Moment | None) -> None:
        """Adds the row of a ranking, or counts why there is none."""
        if event.time_s < self.since_s:
            self.before += 1
            return
        row = self._row(offset, event, moment)
        if isinstance(row, str):
            self.rejected[row] += 1
            return
        self.rows.append(row)
        self.used[event.traffic] += 1
        self.unexplained += row.alone is None
        self.met[event.user] += 1
        self.unsettled += self.view.last_s - event.time_s < self.view.windows.attribution_s

    def _row(self, offset: int, event: RankingEvent, moment: Moment | None) -> Row | str:
        if offset < self.view.labels.forgotten.get(event.user, 0):
            return "forgotten"
        if schema_of(event) != self.schema:
            return f"schema:{schema_of(event)}"
        if self.target.replays and any(reason.startswith("features:") for reason in event.degraded):
            return "features_degraded"
        offer = offer_of(event)
        if isinstance(offer, str):
            return offer
        pairs = offer.pairs
        rewards = rewards_of(self.view.labels, (event.user, event.id), [pairs[row] for row in offer.shown])
        if rewards is None:
            return "no_label"
        chances = self.target.chances(offer, moment)
        each = np.arange(len(offer.shown))
        kinds = [offer.scores] if chances.scores is None else [offer.scores, chances.scores]
        return Row(
            user=event.user,
            position=offer.position,
            propensities=offer.propensities,
            target=chances.given[each, offer.shown],
            alone=logged_alone(offer, self.exploration),
            target_alone=None if chances.alone is None else chances.alone[each, offer.shown],
            given=chances.given.astype(np.float32),
            given_alone=None if chances.alone is None else chances.alone.astype(np.float32),
            shown=offer.shown,
            rewards=rewards,
            actions=tuple(action for action, _ in pairs),
            scores=np.stack(kinds, axis=1).astype(np.float32),
            context=context_words(event),
            slices=slice_names(event, known=self.met[event.user] > 0),
        )


def gather(
    logdir: Path,
    target: Target,
    exploration: Exploration = GREEDY,
    progress: Callable[[int], None] | None = None,
    view: LogView | None = None,
    since_s: float = -math.inf,
) -> Gathered:
    """All slates of a log.

    Args:
        exploration: of the policy that wrote the log, for the probability of a slot by itself in longer lists;
            where the logged propensities do not follow from it, that is not known.
        view: of `read_view`, where it was made already.
        since_s: rankings before it are not judged; what happened then is still known at later ones.

    Raises:
        LogError: there is no such log.
        OffPolicyError: no ranking can serve, with the reasons.
    """
    view = view if view is not None else read_view(logdir)
    work = _Gathering(target, exploration, view, judged_schema(view.schemas), since_s=since_s)
    for offset, event, moment in _decisions(logdir, target, view.windows, progress or (lambda _: None)):
        work.take(offset, event, moment)
    if not work.rows:
        why = {**work.rejected, **{f"traffic {name}": count for name, count in view.excluded.items()}}
        why = {**why, "before the date": work.before} if work.before else why
        raise OffPolicyError(f"{logdir} has no ranking to judge by: {why or 'it has none'}")
    slates, pools = stack(work.rows)
    notes = {
        "before_since": work.before,
        "unsettled": work.unsettled,
        "propensities_not_of_these_scores": work.unexplained,
    }
    return Gathered(slates, pools, slices_of(work.rows), work.rejected, view.excluded, work.used, notes)


def _decisions(
    logdir: Path, target: Target, windows: OutcomeWindows, progress: Callable[[int], None]
) -> Iterator[tuple[int, RankingEvent, Moment | None]]:
    """Judged rankings, each once; with what was known at the time where the target needs it."""
    if target.replays:
        replay = Replay(logdir, progress=progress, windows=windows)
        for decision in replay:
            if isinstance(decision.event, RankingEvent) and decision.event.traffic in JUDGED_TRAFFIC:
                scored = [(action, about) for action, about, _ in scored_set(decision.event) or ()]
                yield decision.offset, decision.event, moment_of(decision, scored, replay.state.catalogue)
        return
    met: set[bytes] = set()
    for count, (offset, event) in enumerate(read_log(logdir)):
        if isinstance(event, RankingEvent) and event.traffic in COUNTED_TRAFFIC:
            name = identity(event)
            if name not in met and event.traffic in JUDGED_TRAFFIC:
                yield offset, event, None
            met.add(name)
        if count % _PROGRESS_EVERY == 0:
            progress(count)


def logged_alone(offer: Offer, exploration: Exploration) -> Floats | None:
    """The log's probability of each slot by itself; None where its propensities do not follow from its scores."""
    slots = len(offer.shown)
    if slots == 1:
        return offer.propensities
    greedy = logged_greedy(offer)
    each = np.arange(slots)
    given = given_above(offer.scores, offer.shown, greedy, exploration)[each, offer.shown]
    if not np.allclose(given, offer.propensities, rtol=SAME, atol=0.0):
        return None
    alone = in_slots(offer.scores, slots, greedy, exploration)[each, offer.shown]
    return alone if (alone > 0.0).all() else None


def logged_greedy(offer: Offer) -> list[int]:
    """The log's greedy order: as logged where scores are equal, as shown on live traffic, else by score."""
    rest = [int(row) for row in np.argsort(-offer.scores, kind="stable")]
    if offer.event.greedy:
        place = {row: number for number, row in enumerate(offer.kept)}
        first = [place[row] for row in offer.event.greedy if row in place]
    else:
        first = list(offer.shown) if offer.event.traffic == "live" else []
    return [*first, *(row for row in rest if row not in set(first))]
