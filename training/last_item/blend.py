"""What ranks: a network's probabilities times evidence of transitions, each to a power, and how often things repeat.

A network with many items and few events of each is worse than counting, and one with many events is better, so the
powers are chosen on the validation items. But the network was stopped where it was best on these very items, and a
thousand users say little: what is shipped as the default stands unless another choice is better by more than a
standard error of the difference, or two where the choice trusts the network more. A product, not a sum: an item ranks
high that both find likely, and a network that is sure of itself cannot drown the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from training.last_item.foretell import Foretell, in_parts
from training.last_item.ranks import figures, places
from training.last_item.sequences import UNKNOWN, Ragged
from training.last_item.split import Queries
from training.last_item.transitions import (
    Floats32,
    Transitions,
    TransitionSettings,
    counted,
    popularity,
    weigh_transitions,
)

Floats = NDArray[np.float64]

POWERS = ((1.0, 1.0), (1.0, 0.0), (1.0, 0.25), (1.0, 0.5), (0.5, 1.0), (0.25, 1.0), (0.0, 1.0))
"""Of the network and of the transitions; the first is the default."""

CLEAR, CLEAR_FOR_NETWORK = 1.0, 2.0
"""Standard errors by which another choice must be better; more where it trusts the network more, which was stopped
where it did best on the same items."""

DECAYS, DAMPINGS, BACKWARDS = (0.8, 0.5, 0.9), (0.3, 0.1, 0.5), (1.0, 0.3)
"""The first of each is the default."""

_TINY = 1e-12
_MOST_LOG_ODDS = 12.0


class Blend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a version mixes.

    Args:
        network, weight: powers of the network's and of the transitions' probabilities.
        repeat: what the log-odds of an item of the history are raised by: far below 0 where nothing happens twice.
    """

    network: float = 1.0
    weight: float = 0.0
    repeat: float = 0.0
    transitions: TransitionSettings = TransitionSettings()


@dataclass(frozen=True)
class Chosen:
    """A blend, and NDCG@10 on the validation items of all that were tried.

    Args:
        tried: by the powers, and by what was tried for the transitions alone.
    """

    blend: Blend
    tried: Mapping[str, float] = field(default_factory=dict)


def mixed(model: Floats32, evidence: Floats32 | None, blend: Blend, histories: Ragged) -> Floats32:
    """The mixture's scores, [histories, 1 + items]: the logarithm of a share of the row."""
    scores = _product(_log(model), None if evidence is None else _log(evidence), blend)
    row, code = inside(histories)
    scores[row, code] += np.float32(blend.repeat)
    return scores


def inside(histories: Ragged) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and distinct known items of histories."""
    row = np.repeat(np.arange(len(histories)), histories.lengths)
    width = int(histories.codes.max(initial=0)) + 1
    pairs = np.unique(row * width + histories.codes)
    pairs = pairs[pairs % width != UNKNOWN]
    return pairs // width, pairs % width


def choose_blend(model: Foretell, train: Ragged, validation: Queries, items: int) -> Chosen:
    """The blend that ranks the validation items best, or the default where none is clearly better."""
    queries = validation.known()
    if not len(queries):
        return Chosen(Blend())
    bench = _Bench(queries)
    settings, alone = _choose_transitions(bench, train, items)
    evidence = _log(gather(_counts(train, items)(settings).probabilities, queries, items))
    network = _log(gather(model, queries, items))
    blends = [Blend(power, weight, transitions=settings) for power, weight in POWERS]
    trials = [bench.trial(network, evidence, blend) for blend in blends]
    tried = {f"network^{each.network:g} transitions^{each.weight:g}": float(gains.mean()) for each, gains in trials}
    clear = [CLEAR_FOR_NETWORK if weight < power else CLEAR for power, weight in POWERS]
    return Chosen(trials[clearly_best([gains for _, gains in trials], clear)][0], tried | alone)


def clearly_best(gains: Sequence[Floats], clear: Sequence[float]) -> int:
    """The place of the best by mean among those that are clearly better than the first, 0 where there is none.

    Args:
        gains: of each choice by query, [queries].
        clear: standard errors of its difference to the first by which a choice must be better.
    """
    differences = [each - gains[0] for each in gains]
    means = [float(each.mean()) for each in differences]
    errors = [float(each.std() / np.sqrt(len(each))) for each in differences]
    better = [at for at in range(1, len(gains)) if means[at] > clear[at] * errors[at]]
    return max(better, key=lambda at: means[at], default=0)


def gather(source: Foretell, queries: Queries, items: int) -> Floats32:
    """What a source says of all queries, [queries, 1 + items]."""
    found = np.empty((len(queries), items + 1), np.float32)
    for rows, part in in_parts(queries, items):
        found[rows] = source(part.histories)
    return found


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


def sources(model: Foretell, transitions: Transitions | None, blend: Blend) -> Foretell:
    """The mixture as a source of scores."""

    def foretell(histories: Ragged) -> Floats32:
        evidence = transitions.probabilities(histories) if transitions is not None and blend.weight > 0.0 else None
        return mixed(model(histories), evidence, blend, histories)

    return foretell


class _Bench:
    """The same queries for every choice."""

    def __init__(self, queries: Queries) -> None:
        self.queries, self._again = queries, repeated(queries)
        self._row, self._code = inside(queries.histories)

    def trial(self, network: Floats32, evidence: Floats32 | None, blend: Blend) -> tuple[Blend, Floats]:
        """NDCG@10 by query, and the blend with the log-odds of repeating that belong to it."""
        scores = _product(network, evidence, blend)
        own = np.exp(scores[self._row, self._code].astype(np.float64))
        history = np.bincount(self._row, own, len(scores)).astype(np.float64)
        raised = repeat_log_odds(history, self._again)
        scores[self._row, self._code] += np.float32(raised)
        gains = figures(*places(scores, self.queries.answers))["ndcg@10"]
        return msgspec.structs.replace(blend, repeat=raised), gains


def _choose_transitions(bench: _Bench, train: Ragged, items: int) -> tuple[TransitionSettings, dict[str, float]]:
    """What ranks best by itself: the sums of the counts are the same for all."""
    weigh = _counts(train, items)
    choices = [
        TransitionSettings(decay=decay, damping=damping, backward=backward)
        for backward, decay, damping in product(BACKWARDS, DECAYS, DAMPINGS)
    ]
    gains = []
    for settings in choices:
        evidence = _log(gather(weigh(settings).probabilities, bench.queries, items))
        gains.append(bench.trial(evidence, None, Blend())[1])
    tried = {
        f"transitions decay {each.decay:g} damping {each.damping:g} backward {each.backward:g}": float(gain.mean())
        for each, gain in zip(choices, gains, strict=True)
    }
    return choices[clearly_best(gains, [CLEAR] * len(gains))], tried


def _counts(train: Ragged, items: int) -> Callable[[TransitionSettings], Transitions]:
    shares, kept = popularity(train, items), dict[tuple[int, float], sparse.csr_array]()

    def weigh(settings: TransitionSettings) -> Transitions:
        key = (settings.reach, settings.backward)
        if key not in kept:
            kept[key] = counted(train, items, *key)
        return weigh_transitions(kept[key], shares, settings)

    return weigh


def _log(shares: Floats32) -> Floats32:
    """Logarithms, what is impossible far below all else."""
    logs: Floats32 = np.log(np.maximum(shares, np.float32(_TINY)))
    logs[:, UNKNOWN] = -np.inf
    return logs


def _product(network: Floats32, evidence: Floats32 | None, blend: Blend) -> Floats32:
    """Logarithms of the shares of each row, from logarithms."""
    scores = np.float32(blend.network) * network[:, 1:]
    if evidence is not None and blend.weight > 0.0:
        scores += np.float32(blend.weight) * evidence[:, 1:]
    scores -= scores.max(axis=1, keepdims=True, initial=-np.inf)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return np.pad(scores, ((0, 0), (1, 0)), constant_values=-np.inf)
