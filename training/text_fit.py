"""Fits the linear text model: multinomial logistic regression on sparse hashed terms, by minibatch Adagrad.

Each batch touches only the weight rows of its own buckets. Deterministic given the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from features.text_model import TextModel
from features.text_terms import BUCKETS, SituationTerms
from ranker.config import TextSettings


def stack_terms(terms: Sequence[SituationTerms]) -> sparse.csr_matrix:
    """CSR [examples, BUCKETS] float32."""
    lengths = [len(row.buckets) for row in terms]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = np.concatenate([row.buckets for row in terms]).astype(np.int32) if terms else np.zeros(0, np.int32)
    values = np.concatenate([row.weights for row in terms]) if terms else np.zeros(0, np.float32)
    return sparse.csr_matrix((values, columns, starts), shape=(len(terms), BUCKETS))


def fit_text(
    rows: sparse.csr_matrix,
    labels: Sequence[str],
    config: TextSettings,
    on_epoch: Callable[[int], None] | None = None,
    start: TextModel | None = None,
) -> TextModel:
    """The model for examples [rows] and the action that was useful in each.

    Args:
        start: its weights are where learning begins, and all that it knows stays known.

    Raises:
        ValueError: no examples.
    """
    if not labels:
        raise ValueError("no examples to learn the text model from")
    actions = _classes(labels, config.max_actions)
    if start is not None:
        room = max(0, config.max_actions - len(start.actions))
        actions = sorted([*start.actions, *_new(actions, start.actions)[:room]])
    column = {action: index for index, action in enumerate(actions)}
    kept = np.array([label in column for label in labels])
    rows, targets = rows[kept], np.array([column[label] for label in labels if label in column])
    counts = np.bincount(rows.indices, minlength=BUCKETS)
    buckets = np.flatnonzero(counts >= config.min_examples).astype(np.uint32)
    if start is not None:
        buckets = np.union1d(buckets, start.buckets).astype(np.uint32)
    fit = _Adagrad(_only(rows, buckets), targets, len(actions), config)
    if start is not None:
        fit.begin(start, np.searchsorted(buckets, start.buckets), np.array([column[name] for name in start.actions]))
    for epoch in range(config.epochs):
        fit.epoch()
        if on_epoch is not None:
            on_epoch(epoch + 1)
    return TextModel(actions, buckets, fit.weights, fit.bias)


def log_probabilities(model: TextModel, rows: sparse.csr_matrix) -> NDArray[np.float32]:
    """Scores [examples, model.actions] of many examples at once; equal to `model.scores` up to rounding."""
    logits = _only(rows, model.buckets) @ model.weights + model.bias
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return np.asarray(logits, np.float32)


def _classes(labels: Sequence[str], limit: int) -> list[str]:
    names, counts = np.unique(np.array(labels, dtype=object), return_counts=True)
    common = np.lexsort((names, -counts))[:limit]
    return sorted(str(names[index]) for index in common)


def _new(actions: Sequence[str], known: Sequence[str]) -> list[str]:
    held = frozenset(known)
    return [action for action in actions if action not in held]


def _only(rows: sparse.csr_matrix, buckets: NDArray[np.uint32]) -> sparse.csr_matrix:
    """The columns of `buckets`, renumbered."""
    place = np.full(BUCKETS, -1, np.int32)
    place[buckets] = np.arange(len(buckets), dtype=np.int32)
    columns = place[rows.indices]
    known = columns >= 0
    starts = np.concatenate([[0], np.cumsum(known)])[rows.indptr].astype(np.int32)
    return sparse.csr_matrix((rows.data[known], columns[known], starts), shape=(rows.shape[0], len(buckets)))


class _Adagrad:
    """Weights and their squared gradients; one call per pass over the examples."""

    def __init__(self, rows: sparse.csr_matrix, targets: NDArray[np.int64], classes: int, config: TextSettings) -> None:
        self.weights = np.zeros((rows.shape[1], classes), np.float32)
        self.bias = np.zeros(classes, np.float32)
        self._squares = np.ones_like(self.weights)
        self._bias_squares = np.ones_like(self.bias)
        self._rows, self._targets, self._config = rows, targets, config
        self._random = np.random.default_rng(config.seed)
        self._step = 0
        self._steps = config.epochs * -(-len(targets) // config.batch)

    def begin(self, start: TextModel, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> None:
        """Takes over weights; an action that is new is as likely as the least likely one was."""
        self.weights[np.ix_(rows, columns)] = start.weights
        self.bias[:] = start.bias.min()
        self.bias[columns] = start.bias

    def epoch(self) -> None:
        order = self._random.permutation(len(self._targets))
        for start in range(0, len(order), self._config.batch):
            self._update(order[start : start + self._config.batch])
            self._step += 1

    def _update(self, examples: NDArray[np.int64]) -> None:
        batch = self._rows[examples]
        used, columns = np.unique(batch.indices, return_inverse=True)
        compact = sparse.csr_matrix(
            (batch.data, columns.astype(np.int32), batch.indptr), shape=(len(examples), len(used))
        )
        weights = self.weights[used]
        error = self._errors(compact @ weights + self.bias, self._targets[examples])
        rate = self._config.rate * (1.0 - self._step / self._steps)
        gradient = compact.T.tocsr() @ error
        squares = self._squares[used] + gradient * gradient
        self._squares[used] = squares
        self.weights[used] = weights - rate * gradient / np.sqrt(squares)
        bias_gradient = error.sum(axis=0)
        self._bias_squares += bias_gradient * bias_gradient
        self.bias -= rate * bias_gradient / np.sqrt(self._bias_squares)

    def _errors(self, logits: NDArray[np.float32], targets: NDArray[np.int64]) -> NDArray[np.float32]:
        """Predicted minus wanted probabilities [examples, classes]."""
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        logits -= self._config.smoothing / logits.shape[1]
        logits[np.arange(len(targets)), targets] -= 1.0 - self._config.smoothing
        return logits
