"""The mixture that ranks: a network's probabilities, evidence of transitions, and how often things repeat.

All of its three numbers and the form of the evidence are chosen by likelihood on the validation items, which says
more than a ranking metric does with a thousand users.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import msgspec
import numpy as np
from numpy.typing import NDArray

from training.last_item.foretell import Foretell, in_parts
from training.last_item.sequences import UNKNOWN, Ragged
from training.last_item.split import Queries
from training.last_item.transitions import Floats32, Transitions, TransitionSettings, count_transitions

Floats = NDArray[np.float64]

WEIGHTS = tuple(round(0.05 * step, 2) for step in range(13))
DECAYS, DAMPINGS = (0.3, 0.5, 0.7), (0.0, 0.2)

_TINY = 1e-12
_MOST_LOG_ODDS = 12.0


class Blend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a version mixes.

    Args:
        weight: of the transitions' probabilities; the rest is the network's.
        repeat: what the log-odds of an item of the history are raised by: far below 0 where nothing happens twice.
    """

    weight: float = 0.0
    repeat: float = 0.0
    transitions: TransitionSettings = TransitionSettings()


@dataclass(frozen=True)
class Evidence:
    """What a source says of each query.

    Args:
        answer: its probability of the answer, [queries].
        history: its probability of all items of the history together, [queries].
    """

    answer: Floats
    history: Floats


def mixed(model: Floats32, evidence: Floats32 | None, blend: Blend, histories: Ragged) -> Floats32:
    """The mixture's scores, [histories, 1 + items]: in proportion to probabilities within a row."""
    scores = model if evidence is None else (1.0 - blend.weight) * model + np.float32(blend.weight) * evidence
    scores = np.array(scores, np.float32)
    row, code = inside(histories)
    scores[row, code] *= np.float32(np.exp(blend.repeat))
    return scores


def inside(histories: Ragged) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and distinct known items of histories."""
    row = np.repeat(np.arange(len(histories)), histories.lengths)
    width = int(histories.codes.max(initial=0)) + 1
    pairs = np.unique(row * width + histories.codes)
    pairs = pairs[pairs % width != UNKNOWN]
    return pairs // width, pairs % width


def choose_blend(model: Foretell, train: Ragged, validation: Queries, items: int) -> tuple[Blend, Floats]:
    """The blend under which the validation items are likeliest.

    Returns:
        It, and the mean log-likelihood at each weight with its form of evidence, [weights].
    """
    queries = validation.known()
    if not len(queries):
        return Blend(), np.zeros(len(WEIGHTS))
    own = gather(model, queries, items)
    again = repeated(queries)
    best: tuple[float, Blend, Floats] | None = None
    for decay, damping in product(DECAYS, DAMPINGS):
        settings = TransitionSettings(decay=decay, damping=damping)
        evidence = gather(count_transitions(train, items, settings).probabilities, queries, items)
        curve = [_judged(own, evidence, weight, again) for weight in WEIGHTS]
        likelihoods = np.array([likelihood for likelihood, _ in curve])
        at = int(likelihoods.argmax())
        if best is None or likelihoods[at] > best[0]:
            best = float(likelihoods[at]), Blend(WEIGHTS[at], curve[at][1], settings), likelihoods
    assert best is not None
    return best[1], best[2]


def gather(source: Foretell, queries: Queries, items: int) -> Evidence:
    """What a source says of all queries, without keeping every probability."""
    answer, history = np.empty(len(queries)), np.empty(len(queries))
    for rows, part in in_parts(queries, items):
        shares = source(part.histories)
        answer[rows] = shares[np.arange(len(rows)), part.answers]
        row, code = inside(part.histories)
        history[rows] = np.bincount(row, shares[row, code], len(rows))
    return Evidence(answer, history)


def repeated(queries: Queries) -> NDArray[np.bool_]:
    """Whether each answer is in its history already, [queries]."""
    histories = queries.histories
    same = histories.codes == np.repeat(queries.answers, histories.lengths)
    return np.asarray(np.add.reduceat(same, histories.starts[:-1]) > 0)


def repeat_log_odds(history: Floats, again: NDArray[np.bool_]) -> float:
    """What makes the items of a history as likely as they turned out to be.

    Args:
        history: probability given to the items of the history, [queries].
        again: [queries].
    """
    expected = float(np.clip(history.mean(), _TINY, 1.0 - _TINY))
    seen = (float(again.sum()) + 0.5) / (len(again) + 1.0)
    odds = np.log(seen / (1.0 - seen)) - np.log(expected / (1.0 - expected))
    return float(np.clip(odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS))


def _judged(model: Evidence, evidence: Evidence, weight: float, again: NDArray[np.bool_]) -> tuple[float, float]:
    """Mean log-likelihood of the answers, and the log-odds of repeating that belong to it."""
    answer = (1.0 - weight) * model.answer + weight * evidence.answer
    history = (1.0 - weight) * model.history + weight * evidence.history
    raised = repeat_log_odds(history, again)
    scale = 1.0 + np.expm1(raised) * history
    likelihood = np.log(np.maximum(answer, _TINY)) + raised * again - np.log(np.maximum(scale, _TINY))
    return float(likelihood.mean()), raised


def sources(model: Foretell, transitions: Transitions | None, blend: Blend) -> Foretell:
    """The mixture as a source of scores."""

    def foretell(histories: Ragged) -> Floats32:
        evidence = transitions.probabilities(histories) if transitions is not None and blend.weight > 0.0 else None
        return mixed(model(histories), evidence, blend, histories)

    return foretell


def mean_likelihoods(found: Iterable[float]) -> dict[str, float]:
    """The curve of `choose_blend` by weight, for the manifest."""
    return {f"{weight:g}": float(value) for weight, value in zip(WEIGHTS, found, strict=True)}
