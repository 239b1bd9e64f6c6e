"""Trains the light ranker: the text model out of fold, then LightGBM's LambdaMART on vectors with its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm
import msgspec
import numpy as np
from numpy.typing import NDArray

from features.events import format_time, from_seconds
from features.log import Problem
from features.registry import COLUMNS, FINGERPRINT
from features.text_model import TextModel
from ranker.config import TrainConfig, TreesSettings
from ranker.light_model import HINT, PLAIN, text_file, trees_file
from training.errors import TrainingError
from training.examples import WHOLE, Examples, TermRows, VectorRows, fill_text, gather_examples
from training.gain_table import gain_table
from training.incremental import Start, going_on, lineage, span_after, span_of, why_nothing
from training.parent import Parent
from training.resume import Span
from training.text_fit import fit_text, log_probabilities, stack_terms
from training.unbiased import Unbiased, make_unbiased

Progress = Callable[[str, int, int], None]
"""(what, done, of how many); the last is 0 when it is not known."""


def tree_parameters(settings: TreesSettings, worth: Sequence[float]) -> dict[str, Any]:
    """The settings as LightGBM names them; the same data, settings and thread count give the same trees.

    Args:
        worth: of each grade.
    """
    return {
        "objective": "lambdarank",
        "num_leaves": settings.num_leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": settings.min_data_in_leaf,
        "feature_fraction": settings.feature_fraction,
        "bagging_fraction": settings.bagging_fraction,
        "bagging_freq": 1,
        "lambda_l2": settings.lambda_l2,
        "lambdarank_truncation_level": settings.truncation_level,
        "max_bin": settings.max_bin,
        "label_gain": list(worth),
        "num_threads": settings.threads,
        "seed": settings.seed,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }


@dataclass
class TrainedLight:
    """What a version is made of: files by name, and what its manifest says.

    Args:
        unusable: the first lines of the log that could not be used; all are counted in `data`.
    """

    files: dict[str, bytes]
    metrics: dict[str, float]
    data: dict[str, Any]
    schema: str = FINGERPRINT
    extra: dict[str, Any] = field(default_factory=dict)
    unusable: Sequence[Problem] = ()


def train_light(
    logdir: Path,
    until_s: float | None = None,
    hint: bool = False,
    config: TrainConfig | None = None,
    progress: Progress = lambda *_: None,
    span: Span = WHOLE,
    parent: Parent | None = None,
) -> TrainedLight:
    """Learns from what happened before `until_s`.

    Args:
        hint: also learn a set with what users typed as the context's text, where the log has it.
        span: which queries to learn from; with a parent by default those since its data ended.
        parent: a version to go on from: its text models learn on, and trees are added to its own.

    Raises:
        LogError: there is no such log.
        TrainingError: nothing useful happened in it, or the parent had learned from some of it already.
    """
    config = config if config is not None else TrainConfig()
    span = span_after(parent, span)
    examples = gather_examples(
        logdir,
        until_s,
        config.sample,
        hint,
        lambda done: progress("replay", done, 0),
        config.labels,
        config.outcomes,
        span=span,
    )
    if not examples.vectors.features:
        raise TrainingError(why_nothing(logdir, span, examples))
    unbiased = make_unbiased(examples.slots, examples.labels, config.position)
    files, metrics = {}, {}
    sets: Mapping[str, tuple[TermRows, VectorRows]] = {
        PLAIN: (examples.plain, examples.vectors),
        HINT: (examples.hint, examples.hint_vectors),
    }
    for kind, (terms, vectors) in sets.items():
        start = Start.of(parent, kind, config.incremental)
        if vectors.features:
            named = partial(_named, progress, kind)
            text, trees, out_of_fold = _train_set(terms, vectors, config, unbiased, named, start)
            files[text_file(kind)] = text.to_bytes()
            files[trees_file(kind)] = trees.model_to_string().encode()
            metrics[f"{kind}_text_hr@1_out_of_fold"] = out_of_fold
        elif hint and parent is not None:
            files |= parent.set_files(kind)
    extra = {"negatives": examples.negatives, "position_bias": unbiased.report()}
    if parent is not None or span.since_s is not None:
        extra["lineage"] = lineage(parent, span, examples.start)
    data = _span(examples, until_s) | span_of(parent, span, examples)
    return TrainedLight(files, metrics, data, extra=extra, unusable=examples.problems.examples)


def _named(progress: Progress, kind: str, what: str, done: int, of: int) -> None:
    progress(f"{kind} {what}", done, of)


def _train_set(
    terms: TermRows,
    vectors: VectorRows,
    config: TrainConfig,
    unbiased: Unbiased,
    progress: Progress,
    start: Start,
) -> tuple[TextModel, lightgbm.Booster, float]:
    text, scores = text_out_of_fold(terms, config, progress, start.text)
    fill_text(vectors, scores, text.actions)
    hits = [text.actions[int(np.nan_to_num(row, nan=-np.inf).argmax())] for row in scores]
    right = float(np.mean([hit == action for hit, action in zip(hits, terms.actions, strict=True)]))
    trees = config.trees
    if start.trees is not None:
        trees = msgspec.structs.replace(trees, rounds=config.incremental.rounds)
    return text, fit_trees(vectors, trees, unbiased, progress, start.trees), right


def text_out_of_fold(
    terms: TermRows, config: TrainConfig, progress: Progress, start: TextModel | None = None
) -> tuple[TextModel, NDArray[np.float32]]:
    """The model of all examples, and scores of each example by a model that did not see its fold.

    Args:
        start: what all of them go on from; it has seen none of the examples.
    """
    settings = config.text if start is None else going_on(config)
    rows = stack_terms(terms.terms)
    folds = np.array(terms.folds)
    labels = np.array(terms.actions, dtype=object)
    of = config.sample.folds + 1
    final = fit_text(rows, terms.actions, settings, start=start)
    progress("text", 1, of)
    place = {action: column for column, action in enumerate(final.actions)}
    known = np.array([label in place for label in labels])
    scores = np.full((len(labels), len(final.actions)), np.nan, np.float32)
    for fold in range(config.sample.folds):
        held = folds == fold
        model = start
        if held.any() and (~held & known).any():
            model = fit_text(rows[~held & known], labels[~held & known].tolist(), settings, start=start)
        if held.any() and model is not None:
            shared = np.array([place[action] for action in model.actions])
            scores[np.ix_(np.flatnonzero(held), shared)] = log_probabilities(model, rows[held])
        progress("text", fold + 2, of)
    return final, scores


def fit_trees(
    vectors: VectorRows,
    settings: TreesSettings,
    unbiased: Unbiased,
    progress: Progress,
    start: lightgbm.Booster | None = None,
) -> lightgbm.Booster:
    """Trees for all vectors, their text columns filled.

    Args:
        start: trees that stay, to which `settings.rounds` are added.
    """
    gains, positions = np.concatenate(vectors.grades), np.concatenate(vectors.positions)
    table = gain_table(gains, settings.exponential)
    dataset = lightgbm.Dataset(
        np.concatenate(vectors.features),
        table.grades,
        group=[len(grades) for grades in vectors.grades],
        feature_name=list(COLUMNS),
        free_raw_data=True,
        position=unbiased.ids(positions),
        weight=unbiased.weights(positions, gains),
    )
    parameters = tree_parameters(settings, table.worth) | unbiased.parameters()

    def report(env: Any) -> None:
        progress("trees", env.iteration - env.begin_iteration + 1, settings.rounds)

    return lightgbm.train(parameters, dataset, settings.rounds, init_model=start, callbacks=[report])


def _span(examples: Examples, until_s: float | None) -> dict[str, Any]:
    return {
        "since": format_time(from_seconds(examples.first_s)),
        "until": format_time(from_seconds(examples.last_s if until_s is None else until_s)),
        "last": format_time(from_seconds(examples.last_s)),
        "events": examples.start + examples.labels.counts["events"],
        "rankings": examples.labels.counts["rankings"],
        "queries": len(examples.plain.terms),
        "skipped": dict(examples.skipped),
        "unusable_lines": dict(examples.problems.counts),
    }
