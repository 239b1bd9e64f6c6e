"""Examples for the light ranker, gathered in one replay: vectors of sampled candidates, grades, and terms.

Text columns are left open: they are filled with scores from models that did not see the query's cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from features.definitions.text import TextScore, text_columns
from features.events import Event, RankingEvent
from features.label_config import LabelSettings, OutcomeWindows
from features.log import Problems
from features.outcomes import WINDOWS
from features.registry import COLUMNS, vectors
from features.text_terms import SituationTerms, situation_terms
from ranker.config import SampleSettings
from training.evidence import Negatives, choose_negatives
from training.labels import LABELS, Labels, read_labels
from training.position import ShuffledSlots
from training.queries import Query, build_query, fold_of, sample_rows, shown_rows
from training.replay import Decision, Replay
from training.resume import Resumed, Span

TEXT_COLUMNS = [COLUMNS.index(column) for column in TextScore.columns]
PRIOR_COLUMN = COLUMNS.index("prior_log")
WHOLE = Span()
HAS_TEXT_COLUMN = COLUMNS.index("match_has_text")


@dataclass
class TermRows:
    """One example of the text model per query: its terms, the useful action, and its fold."""

    terms: list[SituationTerms] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    folds: list[int] = field(default_factory=list)

    def add(self, terms: SituationTerms, action: str, fold: int) -> None:
        """Appends an example."""
        self.terms.append(terms)
        self.actions.append(action)
        self.folds.append(fold)


@dataclass
class VectorRows:
    """Vectors of sampled candidates, query by query.

    Args:
        features: per query [sampled, columns].
        grades: per query [sampled], gains.
        positions: per query [sampled], from 1; 0 for what was not offered.
        candidates: per query, all its candidates' actions: text gap and rank are among them.
        sampled: per query, rows of `candidates` that have vectors.
        term_rows: per query, its row in TermRows.
    """

    features: list[NDArray[np.float32]] = field(default_factory=list)
    grades: list[NDArray[np.float64]] = field(default_factory=list)
    positions: list[NDArray[np.int64]] = field(default_factory=list)
    candidates: list[tuple[str, ...]] = field(default_factory=list)
    sampled: list[NDArray[np.int64]] = field(default_factory=list)
    term_rows: list[int] = field(default_factory=list)

    def keep_last(self, count: int) -> None:
        """Drops the first queries, so that at most `count` are left."""
        for column in (self.features, self.grades, self.positions, self.candidates, self.sampled, self.term_rows):
            del column[: max(0, len(column) - count)]


@dataclass
class Examples:
    """All of a log: `plain` terms of contexts as logged, `hint` those with what was typed as the text.

    Args:
        problems: lines that could not be used.
        slots: what the log's lists say about positions.
        newest_s: time of the latest event, learned from or not.
        start: offset of the first line read; 0, unless a checkpoint had what was before.
        rankings: those met that could be learned from by their time.
    """

    labels: Labels
    negatives: Negatives = "pool"
    plain: TermRows = field(default_factory=TermRows)
    hint: TermRows = field(default_factory=TermRows)
    vectors: VectorRows = field(default_factory=VectorRows)
    hint_vectors: VectorRows = field(default_factory=VectorRows)
    skipped: Counter[str] = field(default_factory=Counter)
    problems: Problems = field(default_factory=Problems)
    slots: ShuffledSlots = field(default_factory=ShuffledSlots)
    first_s: float = 0.0
    last_s: float = 0.0
    newest_s: float = 0.0
    start: int = 0
    rankings: int = 0


class Watch:
    """Sees what a replay for examples sees; this one looks away."""

    def begin(self, labels: Labels) -> None:
        """Told first what is known of all outcomes."""

    def follow(self, offset: int, event: Event) -> None:
        """Told of each event as it changes what is known."""

    def met(self, query: Query, examples: Examples) -> None:
        """Told of each query that has become an example, right after it has: its rows are the last ones."""


def gather_examples(
    logdir: Path,
    until_s: float | None,
    config: SampleSettings,
    with_hint: bool,
    progress: Callable[[int], None] | None = None,
    label_settings: LabelSettings = LABELS,
    windows: OutcomeWindows = WINDOWS,
    watch: Watch | None = None,
    span: Span = WHOLE,
) -> Examples:
    """Replays the log up to `until_s` and collects its examples.

    Args:
        label_settings, windows: what outcomes count as, and are worth.
        watch: sees the same replay.
        span: which queries are learned from, and where the replay begins.

    Raises:
        LogError: there is no such log.
        CheckpointRefused: the span's checkpoint cannot be gone on from.
    """
    resumed = Resumed.open(logdir, span, until_s, windows)
    labels = read_labels(resumed.events(), label_settings, windows)
    labels.counts.update(resumed.carried)
    examples = Examples(labels, choose_negatives(config, labels))
    total = labels.counts["own_actions"] if labels.learn_from_own_actions else labels.counts["useful_rankings"]
    watch = watch or Watch()
    watch.begin(labels)
    replay = Replay(logdir, until_s, labels.learn_from_own_actions, progress, windows, watch.follow, resumed.begin)
    resumed.watch(replay, windows, labels.counts)
    examples.problems = replay.problems
    met = 0
    for decision in replay:
        if not resumed.learns(decision.event.time_s):
            examples.skipped["before_since"] += 1
            continue
        examples.rankings += isinstance(decision.event, RankingEvent)
        _note_slots(examples, decision)
        query = build_query(decision, labels, replay.state.catalogue)
        if isinstance(query, str):
            examples.skipped[query] += 1
            continue
        met += 1
        recent = span.since_s is not None or met > total - config.max_queries
        if _add(examples, query, config, recent, with_hint):
            watch.met(query, examples)
    if span.since_s is not None:
        for rows in (examples.vectors, examples.hint_vectors):
            rows.keep_last(config.max_queries)
    examples.newest_s, examples.start = resumed.newest_s, resumed.start
    resumed.save()
    return examples


def _note_slots(examples: Examples, decision: Decision) -> None:
    event = decision.event
    gains = examples.labels.grades.get((event.user, event.id)) if isinstance(event, RankingEvent) else None
    if isinstance(event, RankingEvent) and gains is not None:
        examples.slots.add(event, gains)


def _add(examples: Examples, query: Query, config: SampleSettings, recent: bool, with_hint: bool) -> bool:
    """Whether it became an example with vectors."""
    action = query.useful_action
    if action is None:
        examples.skipped["positive_not_in_candidates"] += 1
        return False
    moment = query.moment
    examples.first_s = examples.first_s or moment.now_s
    examples.last_s = max(examples.last_s, moment.now_s)
    fold = fold_of(query.cluster, config.folds)
    examples.plain.add(situation_terms(moment.user, moment.context, moment.known.session), action, fold)
    hint = query.hint if with_hint else None
    if hint is not None:
        context = msgspec.structs.replace(moment.context, text=hint)
        examples.hint.add(situation_terms(moment.user, context, moment.known.session), action, fold)
    return recent and _add_vectors(examples, query, config, hint is not None)


def _add_vectors(examples: Examples, query: Query, config: SampleSettings, with_hint: bool) -> bool:
    sampled = shown_rows(query)
    if examples.negatives == "offered" and len(np.unique(query.grades[sampled])) < 2:
        examples.skipped["nothing_to_compare"] += 1
        return False
    features = vectors(query.moment)
    if examples.negatives == "pool":
        sampled = sample_rows(query, features[:, PRIOR_COLUMN], config.top, config.others, config.seed)
    plain, hint = examples.vectors, examples.hint_vectors
    chosen = features[sampled]
    _append(plain, chosen, query, sampled, len(examples.plain.terms) - 1)
    if with_hint:
        texted = chosen.copy()
        texted[:, HAS_TEXT_COLUMN] = 1.0
        _append(hint, texted, query, sampled, len(examples.hint.terms) - 1)
    return True


def _append(
    rows: VectorRows,
    features: NDArray[np.float32],
    query: Query,
    sampled: NDArray[np.int64],
    term_row: int,
) -> None:
    rows.features.append(features)
    rows.grades.append(query.grades[sampled])
    rows.positions.append(query.positions[sampled])
    rows.candidates.append(query.moment.actions)
    rows.sampled.append(sampled)
    rows.term_rows.append(term_row)


def fill_text(rows: VectorRows, scores: NDArray[np.float32], actions: Sequence[str]) -> None:
    """Sets the text columns of all vectors.

    Args:
        scores: log-probabilities [term rows, actions], each from a model that did not see the row.
        actions: what the columns of `scores` are.
    """
    column = {action: index for index, action in enumerate(actions)}
    known: dict[tuple[str, ...], NDArray[np.int64]] = {}
    for features, candidates, sampled, term_row in zip(
        rows.features, rows.candidates, rows.sampled, rows.term_rows, strict=True
    ):
        if candidates not in known:
            known[candidates] = np.array([column.get(action, -1) for action in candidates])
        columns = known[candidates]
        all_scores = np.where(columns >= 0, scores[term_row, columns], np.nan).astype(np.float64)
        features[:, TEXT_COLUMNS] = text_columns(all_scores, len(candidates))[sampled]
