"""Trains the light ranker: the text model out of fold, then LightGBM's LambdaMART on vectors with its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from features.events import format_time, from_seconds
from features.log import Problem
from features.registry import COLUMNS, FINGERPRINT
from features.text_model import TextModel
from ranker.config import TrainConfig, TreesSettings
from ranker.light_model import HINT, PLAIN, text_file, trees_file
from training.errors import TrainingError
from training.examples import Examples, TermRows, VectorRows, fill_text, gather_examples
from training.gain_table import gain_table
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
) -> TrainedLight:
    """Learns from what happened before `until_s`.

    Args:
        hint: also learn a set with what users typed as the context's text, where the log has it.

    Raises:
        LogError: there is no such log.
        TrainingError: nothing useful happened in it.
    """
    config = config if config is not None else TrainConfig()
    examples = gather_examples(
        logdir, until_s, config.sample, hint, lambda done: progress("replay", done, 0), config.labels, config.outcomes
    )
    if not examples.vectors.features:
        counts, skipped = dict(examples.labels.counts), dict(examples.skipped)
        raise TrainingError(f"{logdir} has no useful outcome to learn from: {counts}; skipped {skipped}")
    unbiased = make_unbiased(examples.slots, examples.labels, config.position)
    files, metrics = {}, {}
    sets: Mapping[str, tuple[TermRows, VectorRows]] = {
        PLAIN: (examples.plain, examples.vectors),
        HINT: (examples.hint, examples.hint_vectors),
    }
    for kind, (terms, vectors) in sets.items():
        if vectors.features:
            text, trees, out_of_fold = _train_set(terms, vectors, config, unbiased, partial(_named, progress, kind))
            files[text_file(kind)] = text.to_bytes()
            files[trees_file(kind)] = trees.model_to_string().encode()
            metrics[f"{kind}_text_hr@1_out_of_fold"] = out_of_fold
    extra = {"negatives": examples.negatives, "position_bias": unbiased.report()}
    return TrainedLight(files, metrics, _span(examples, until_s), extra=extra, unusable=examples.problems.examples)


def _named(progress: Progress, kind: str, what: str, done: int, of: int) -> None:
    progress(f"{kind} {what}", done, of)


def _train_set(
    terms: TermRows, vectors: VectorRows, config: TrainConfig, unbiased: Unbiased, progress: Progress
) -> tuple[TextModel, lightgbm.Booster, float]:
    text, scores = text_out_of_fold(terms, config, progress)
    fill_text(vectors, scores, text.actions)
    hits = [text.actions[int(np.nan_to_num(row, nan=-np.inf).argmax())] for row in scores]
    right = float(np.mean([hit == action for hit, action in zip(hits, terms.actions, strict=True)]))
    return text, fit_trees(vectors, config.trees, unbiased, progress), right


def text_out_of_fold(terms: TermRows, config: TrainConfig, progress: Progress) -> tuple[TextModel, NDArray[np.float32]]:
    """The model of all examples, and scores of each example by a model that did not see its fold."""
    rows = stack_terms(terms.terms)
    folds = np.array(terms.folds)
    labels = np.array(terms.actions, dtype=object)
    of = config.sample.folds + 1
    final = fit_text(rows, terms.actions, config.text)
    progress("text", 1, of)
    place = {action: column for column, action in enumerate(final.actions)}
    known = np.array([label in place for label in labels])
    scores = np.full((len(labels), len(final.actions)), np.nan, np.float32)
    for fold in range(config.sample.folds):
        held = folds == fold
        if held.any() and (~held & known).any():
            model = fit_text(rows[~held & known], labels[~held & known].tolist(), config.text)
            shared = np.array([place[action] for action in model.actions])
            scores[np.ix_(np.flatnonzero(held), shared)] = log_probabilities(model, rows[held])
        progress("text", fold + 2, of)
    return final, scores


def fit_trees(vectors: VectorRows, settings: TreesSettings, unbiased: Unbiased, progress: Progress) -> lightgbm.Booster:
    """Trees for all vectors, their text columns filled."""
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
        progress("trees", env.iteration + 1, settings.rounds)

    return lightgbm.train(parameters, dataset, settings.rounds, callbacks=[report])


def _span(examples: Examples, until_s: float | None) -> dict[str, Any]:
    return {
        "since": format_time(from_seconds(examples.first_s)),
        "until": format_time(from_seconds(examples.last_s if until_s is None else until_s)),
        "last": format_time(from_seconds(examples.last_s)),
        "events": examples.labels.counts["events"],
        "rankings": examples.labels.counts["rankings"],
        "queries": len(examples.plain.terms),
        "skipped": dict(examples.skipped),
        "unusable_lines": dict(examples.problems.counts),
    }
