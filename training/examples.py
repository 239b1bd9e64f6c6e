"""Examples for the light ranker, gathered in one replay: vectors of sampled candidates, grades, and terms.

Text columns are left open: they are filled with scores from models that did not see the query's cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from features.definitions.text import TextScore, text_columns
from features.events import Event, ForgetEvent
from features.log import Problems, read_log
from features.registry import COLUMNS, vectors
from features.text_terms import SituationTerms, situation_terms
from ranker.config import SampleSettings
from training.labels import Labels, read_labels
from training.queries import Query, build_query, fold_of, sample_rows
from training.replay import Replay

TEXT_COLUMNS = [COLUMNS.index(column) for column in TextScore.columns]
PRIOR_COLUMN = COLUMNS.index("prior_log")
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
        grades: per query [sampled].
        candidates: per query, all its candidates' actions: text gap and rank are among them.
        sampled: per query, rows of `candidates` that have vectors.
        term_rows: per query, its row in TermRows.
    """

    features: list[NDArray[np.float32]] = field(default_factory=list)
    grades: list[NDArray[np.int64]] = field(default_factory=list)
    candidates: list[tuple[str, ...]] = field(default_factory=list)
    sampled: list[NDArray[np.int64]] = field(default_factory=list)
    term_rows: list[int] = field(default_factory=list)


@dataclass
class Examples:
    """All of a log: `plain` terms of contexts as logged, `hint` those with what was typed as the text.

    Args:
        problems: lines that could not be used.
    """

    labels: Labels
    plain: TermRows = field(default_factory=TermRows)
    hint: TermRows = field(default_factory=TermRows)
    vectors: VectorRows = field(default_factory=VectorRows)
    hint_vectors: VectorRows = field(default_factory=VectorRows)
    skipped: Counter[str] = field(default_factory=Counter)
    problems: Problems = field(default_factory=Problems)
    first_s: float = 0.0
    last_s: float = 0.0


def gather_examples(
    logdir: Path,
    until_s: float | None,
    config: SampleSettings,
    with_hint: bool,
    progress: Callable[[int], None] | None = None,
) -> Examples:
    """Replays the log up to `until_s` and collects its examples.

    Raises:
        LogError: there is no such log.
    """
    labels = read_labels(_before(logdir, until_s))
    examples = Examples(labels)
    total = labels.counts["own_actions"] if labels.learn_from_own_actions else labels.counts["useful_rankings"]
    replay = Replay(logdir, until_s, labels.learn_from_own_actions, progress)
    examples.problems = replay.problems
    met = 0
    for decision in replay:
        query = build_query(decision, labels, replay.state.catalogue)
        if isinstance(query, str):
            examples.skipped[query] += 1
            continue
        met += 1
        _add(examples, query, config, met > total - config.max_queries, with_hint)
    return examples


def _before(logdir: Path, until_s: float | None) -> Iterator[tuple[int, Event]]:
    """Events before `until_s`, and whoever asked to be forgotten, whenever that was."""
    for offset, event in read_log(logdir):
        if until_s is None or event.time_s < until_s or isinstance(event, ForgetEvent):
            yield offset, event


def _add(examples: Examples, query: Query, config: SampleSettings, recent: bool, with_hint: bool) -> None:
    action = query.useful_action
    if action is None:
        examples.skipped["positive_not_in_candidates"] += 1
        return
    moment = query.moment
    examples.first_s = examples.first_s or moment.now_s
    examples.last_s = max(examples.last_s, moment.now_s)
    fold = fold_of(query.cluster, config.folds)
    examples.plain.add(situation_terms(moment.user, moment.context, moment.known.session), action, fold)
    hint = query.hint if with_hint else None
    if hint is not None:
        context = msgspec.structs.replace(moment.context, text=hint)
        examples.hint.add(situation_terms(moment.user, context, moment.known.session), action, fold)
    if recent:
        _add_vectors(examples, query, config, hint is not None)


def _add_vectors(examples: Examples, query: Query, config: SampleSettings, with_hint: bool) -> None:
    features = vectors(query.moment)
    sampled = sample_rows(query, features[:, PRIOR_COLUMN], config.top, config.others, config.seed)
    plain, hint = examples.vectors, examples.hint_vectors
    chosen = features[sampled]
    grades = query.grades[sampled]
    _append(plain, chosen, grades, query.moment.actions, sampled, len(examples.plain.terms) - 1)
    if with_hint:
        texted = chosen.copy()
        texted[:, HAS_TEXT_COLUMN] = 1.0
        _append(hint, texted, grades, query.moment.actions, sampled, len(examples.hint.terms) - 1)


def _append(
    rows: VectorRows,
    features: NDArray[np.float32],
    grades: NDArray[np.int64],
    candidates: tuple[str, ...],
    sampled: NDArray[np.int64],
    term_row: int,
) -> None:
    rows.features.append(features)
    rows.grades.append(grades)
    rows.candidates.append(candidates)
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
