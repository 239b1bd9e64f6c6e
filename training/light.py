"""Trains the light ranker: the text model out of fold, then LightGBM's LambdaMART on vectors with its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from features.events import format_time, from_seconds
from features.registry import COLUMNS, FINGERPRINT
from features.text_model import TextModel
from ranker.light_model import HINT, PLAIN, text_file, trees_file
from training.errors import TrainingError
from training.examples import Examples, SampleConfig, TermRows, VectorRows, fill_text, gather_examples
from training.text_fit import TextFitConfig, fit_text, log_probabilities, stack_terms

Progress = Callable[[str, int, int], None]
"""(what, done, of how many); the last is 0 when it is not known."""


@dataclass(frozen=True)
class TreesConfig:
    """LightGBM's parameters; `label_gain` by grade: ignored, accepted, completed."""

    rounds: int = 120
    num_leaves: int = 15
    learning_rate: float = 0.07
    min_data_in_leaf: int = 200
    feature_fraction: float = 0.6
    bagging_fraction: float = 0.8
    lambda_l2: float = 1.0
    truncation_level: int = 10
    max_bin: int = 127
    label_gain: tuple[int, ...] = (0, 1, 3)
    threads: int = 2
    seed: int = 0

    def parameters(self) -> dict[str, Any]:
        """As LightGBM names them."""
        return {
            "objective": "lambdarank",
            "num_leaves": self.num_leaves,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.min_data_in_leaf,
            "feature_fraction": self.feature_fraction,
            "bagging_fraction": self.bagging_fraction,
            "bagging_freq": 1,
            "lambda_l2": self.lambda_l2,
            "lambdarank_truncation_level": self.truncation_level,
            "max_bin": self.max_bin,
            "label_gain": list(self.label_gain),
            "num_threads": self.threads,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


@dataclass(frozen=True)
class LightConfig:
    """All that training the light stage needs."""

    sample: SampleConfig = SampleConfig()
    text: TextFitConfig = TextFitConfig()
    trees: TreesConfig = TreesConfig()


@dataclass
class TrainedLight:
    """What a version is made of: files by name, and what its manifest says."""

    files: dict[str, bytes]
    metrics: dict[str, float]
    data: dict[str, Any]
    schema: str = FINGERPRINT
    extra: dict[str, Any] = field(default_factory=dict)


def train_light(
    logdir: Path,
    until_s: float | None = None,
    hint: bool = False,
    config: LightConfig = LightConfig(),
    progress: Progress = lambda *_: None,
) -> TrainedLight:
    """Learns from what happened before `until_s`.

    Args:
        hint: also learn a set with what users typed as the context's text, where the log has it.

    Raises:
        LogError: there is no such log.
        TrainingError: nothing useful happened in it.
    """
    examples = gather_examples(logdir, until_s, config.sample, hint, lambda done: progress("replay", done, 0))
    if not examples.plain.terms:
        raise TrainingError(f"{logdir} has no useful outcome to learn from: {dict(examples.labels.counts)}")
    files, metrics = {}, {}
    sets: Mapping[str, tuple[TermRows, VectorRows]] = {
        PLAIN: (examples.plain, examples.vectors),
        HINT: (examples.hint, examples.hint_vectors),
    }
    for kind, (terms, vectors) in sets.items():
        if terms.terms:
            text, trees, out_of_fold = _train_set(terms, vectors, config, lambda *a, k=kind: progress(f"{k} {a[0]}", *a[1:]))
            files[text_file(kind)] = text.to_bytes()
            files[trees_file(kind)] = trees.model_to_string().encode()
            metrics[f"{kind}_text_hr@1_out_of_fold"] = out_of_fold
    return TrainedLight(files, metrics, _span(examples, until_s))


def _train_set(
    terms: TermRows, vectors: VectorRows, config: LightConfig, progress: Progress
) -> tuple[TextModel, lightgbm.Booster, float]:
    text, scores = _out_of_fold(terms, config, progress)
    fill_text(vectors, scores, text.actions)
    place = {action: column for column, action in enumerate(text.actions)}
    hits = [text.actions[int(row.argmax())] == action for row, action in zip(scores, terms.actions, strict=True)]
    return text, _fit_trees(vectors, config.trees, progress), float(np.mean(hits)) if place else 0.0


def _out_of_fold(terms: TermRows, config: LightConfig, progress: Progress) -> tuple[TextModel, NDArray[np.float32]]:
    """The model of all examples, and scores of each example by a model that did not see its fold."""
    rows = stack_terms(terms.terms)
    folds = np.array(terms.folds)
    labels = np.array(terms.actions, dtype=object)
    of = config.sample.folds + 1
    final = fit_text(rows, terms.actions, config.text)
    progress("text", 1, of)
    place = {action: column for column, action in enumerate(final.actions)}
    scores = np.full((len(labels), len(final.actions)), np.nan, np.float32)
    for fold in range(config.sample.folds):
        held = folds == fold
        if held.any() and not held.all():
            model = fit_text(rows[~held], labels[~held].tolist(), replace(config.text, max_actions=len(final.actions)))
            columns = [place[action] for action in model.actions if action in place]
            kept = [index for index, action in enumerate(model.actions) if action in place]
            scores[np.ix_(np.flatnonzero(held), columns)] = log_probabilities(model, rows[held])[:, kept]
        progress("text", fold + 2, of)
    return final, scores


def _fit_trees(vectors: VectorRows, config: TreesConfig, progress: Progress) -> lightgbm.Booster:
    dataset = lightgbm.Dataset(
        np.concatenate(vectors.features),
        np.concatenate(vectors.grades),
        group=[len(grades) for grades in vectors.grades],
        feature_name=list(COLUMNS),
        free_raw_data=True,
    )

    def report(env: Any) -> None:
        progress("trees", env.iteration + 1, config.rounds)

    return lightgbm.train(config.parameters(), dataset, config.rounds, callbacks=[report])


def _span(examples: Examples, until_s: float | None) -> dict[str, Any]:
    return {
        "since": format_time(from_seconds(examples.first_s)),
        "until": format_time(from_seconds(examples.last_s if until_s is None else until_s)),
        "last": format_time(from_seconds(examples.last_s)),
        "events": examples.labels.counts["events"],
        "rankings": examples.labels.counts["rankings"],
        "queries": len(examples.plain.terms),
        "skipped": dict(examples.skipped),
    }
