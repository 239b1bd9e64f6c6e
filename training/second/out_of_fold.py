"""The light stage's scores of examples, by trees and texts that did not see them.

The second stage must learn how far a light score can be trusted; one that saw its own label is right too often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from ranker.config import TrainConfig
from training.errors import TrainingError
from training.examples import TermRows, VectorRows, fill_text
from training.light import Progress, fit_trees, text_out_of_fold
from training.unbiased import Unbiased

Scores = list[NDArray[np.float32]]
"""Per query [sampled candidates]."""


def light_out_of_fold(
    terms: TermRows, vectors: VectorRows, config: TrainConfig, unbiased: Unbiased, progress: Progress
) -> Scores:
    """Fills the text columns of `vectors`, and scores each query by trees of the other folds.

    Raises:
        TrainingError: all is in one fold.
    """
    text, scores = text_out_of_fold(terms, config, progress)
    fill_text(vectors, scores, text.actions)
    folds = np.array([terms.folds[row] for row in vectors.term_rows])
    found: Scores = [np.zeros(0, np.float32)] * len(folds)
    for number, fold in enumerate(np.unique(folds)):
        held, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        if not len(rest):
            raise TrainingError("all queries belong to one session or user: nothing is left to score them by")
        trees = fit_trees(_some(vectors, rest), config.trees, unbiased, lambda *_: None)
        _score(trees, vectors, held, found)
        progress("light, out of fold", number + 1, len(np.unique(folds)))
    return found


def _score(trees: lightgbm.Booster, vectors: VectorRows, rows: NDArray[np.int64], found: Scores) -> None:
    packed = np.concatenate([vectors.features[row] for row in rows])
    joined = np.asarray(trees.predict(packed, num_threads=1), np.float32)
    ends = np.cumsum([len(vectors.features[row]) for row in rows])
    for row, scores in zip(rows.tolist(), np.split(joined, ends[:-1]), strict=True):
        found[row] = scores


def _some(vectors: VectorRows, rows: NDArray[np.int64]) -> VectorRows:
    def chosen(values: Sequence[Any]) -> list[Any]:
        return [values[row] for row in rows.tolist()]

    return VectorRows(
        chosen(vectors.features), chosen(vectors.grades), chosen(vectors.positions), chosen(vectors.candidates),
        chosen(vectors.sampled), chosen(vectors.term_rows),
    )  # fmt: skip
