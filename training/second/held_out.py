"""What the held-out questions say: how good a fit is, and how far each part of its score can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from ranker.second.batches import candidate_batch, event_batch, moved
from ranker.second.network import UNTRIED, SecondNet
from ranker.second.weights import utility_of
from training.metrics import hit_rate, reciprocal_rank
from training.second.dataset import Form, Question
from training.second.run import Run

Floats = NDArray[np.float64]

MOST = 2.0
"""By which a part may be multiplied."""
PRIOR = 5.0
"""Questions' worth of belief that the fit is right as it is: few held-out questions change little."""


class Trust(msgspec.Struct, frozen=True):
    """By what the parts of a score are multiplied.

    Args:
        light: the light stage's score, as it was learned.
        opinion: what is made of the light stage's vectors.
        correction: what candidates made of themselves and the history.
        told: what the request foretells; nothing before it was asked.
    """

    light: float = UNTRIED[0]
    opinion: float = UNTRIED[1]
    correction: float = UNTRIED[2]
    told: float = UNTRIED[3]


class Trusts(msgspec.Struct, frozen=True):
    """Where nothing is typed, and where something is."""

    silent: Trust = Trust()
    typed: Trust = Trust()

    def of(self, answer: Answer) -> Trust:
        """What is trusted in this answer."""
        return self.typed if answer.form.request.typed else self.silent


@dataclass(frozen=True)
class Answer:
    """What the network says to a held-out question.

    Args:
        light, opinion, correction: [candidates, HEADS] parts of its logits.
        told: [candidates].
    """

    question: Question
    form: Form
    light: Floats
    opinion: Floats
    correction: Floats
    told: Floats

    def logits(self, trust: Trust, bias: Floats) -> Floats:
        """[candidates, HEADS]."""
        scored = trust.light * self.light + trust.opinion * self.opinion + trust.correction * self.correction + bias
        found: Floats = scored + trust.told * self.told[:, None]
        return found


@torch.inference_mode()
def answers(net: SecondNet, run: Run, hinted: bool = False) -> Iterator[Answer]:
    """To all held-out questions as they were asked; with `hinted` also with what was typed."""
    net.eval()
    for window in run.windows:
        held = [question for question in window.questions if question.now_s >= run.split_s]
        if not held:
            continue
        cache, _ = net.encode(moved(event_batch([window.tokens]), run.device))
        for question in held:
            for form in (question.plain, question.hint if hinted else None):
                if form is None:
                    continue
                origin_s = float(window.tokens["time_s"][0]) if len(window.tokens) else form.request.time_s
                batch, _ = candidate_batch([[(form.request, form.candidates, question.index, origin_s)]])
                batch = moved(batch, run.device)
                heard = net.hear(batch, cache, prefix=True)
                light = net.light.gain * batch.light[..., None]
                opinion = net.light.opinion(net.known(batch))
                parts = (light, opinion, net.corrected(heard), net.foretold(batch, heard))
                yield Answer(question, form, *(part[0].double().cpu().numpy() for part in parts))


def bias_of(net: SecondNet) -> Floats:
    """[HEADS] of the outcomes."""
    found: Floats = net.outcomes.bias.detach().double().cpu().numpy()
    return found


def figures(told: Sequence[Answer], trusts: Trusts, bias: Floats, run: Run) -> dict[str, float]:
    """Of questions as they were asked, over the candidates that there are vectors of.

    Returns:
        `score` is the mean reciprocal rank, `loss` the listwise one; the light stage's own figures are beside them.
    """
    found: dict[str, list[float]] = {"hr@1": [], "score": [], "loss": [], "light_hr@1": [], "light_score": []}
    for answer in told:
        if answer.form is not answer.question.plain:
            continue
        scores = utility_of(answer.logits(trusts.of(answer), bias), run.worth)
        found["loss"].append(_listwise(scores, answer.question.gains))
        for name, values in (("", scores), ("light_", answer.form.candidates.light)):
            best = (answer.question.gains == answer.question.gains.max()).astype(np.float64)
            found[f"{name}hr@1"].append(hit_rate(values, best, 1) or 0.0)
            found[f"{name}score"].append(reciprocal_rank(values, best) or 0.0)
    return {name: float(np.mean(values)) if values else 0.0 for name, values in found.items()}


def find_trusts(told: Sequence[Answer], bias: Floats, run: Run) -> Trusts:
    """Of both kinds of requests; a kind that was not held out is trusted as the other."""
    kinds = [[answer for answer in told if bool(answer.form.request.typed) == typed] for typed in (False, True)]
    silent, typed = (find_trust(some or told, bias, run) for some in kinds)
    return Trusts(silent, typed)


def find_trust(told: Sequence[Answer], bias: Floats, run: Run) -> Trust:
    """What suits the held-out questions best, by the listwise loss.

    Outcomes have levels that a correction may hold however badly it orders, so the loss is that of the order. A fit
    that has learned its examples by heart is drawn back to the light stage's order.
    """
    if not told:
        return Trust()
    packed = _Packed.of(told)
    start = np.array(UNTRIED)

    def loss(factors: Floats) -> float:
        drawn_back = PRIOR * float(((factors - start) ** 2).sum()) / len(told)
        return packed.loss(Trust(*factors.tolist()), bias, run.worth) + drawn_back

    found = minimize(loss, start, method="L-BFGS-B", bounds=[(0.0, MOST)] * len(UNTRIED), options={"maxiter": 50})
    return Trust(*(round(float(factor), 4) for factor in found.x))


@torch.no_grad()
def apply_trusts(net: SecondNet, trusts: Trusts) -> None:
    """Makes them a part of the network."""
    net.trust.copy_(torch.tensor([msgspec.structs.astuple(trusts.silent), msgspec.structs.astuple(trusts.typed)]))


@dataclass(frozen=True)
class _Packed:
    """Answers as one array each, padded; [answers, candidates, HEADS] or without the last."""

    light: Floats
    opinion: Floats
    correction: Floats
    told: Floats
    share: Floats
    real: NDArray[np.bool_]

    @classmethod
    def of(cls, told: Sequence[Answer]) -> _Packed:
        shape = (len(told), max(len(answer.told) for answer in told))
        heads = told[0].light.shape[1]
        light, opinion, correction = (np.zeros((*shape, heads)) for _ in range(3))
        packed = cls(light, opinion, correction, np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_))
        for row, answer in enumerate(told):
            size = len(answer.told)
            packed.light[row, :size], packed.opinion[row, :size] = answer.light, answer.opinion
            packed.correction[row, :size] = answer.correction
            packed.told[row, :size], packed.real[row, :size] = answer.told, True
            gains = np.maximum(answer.question.gains, 0.0)
            packed.share[row, :size] = gains / max(gains.sum(), 1e-9)
        return packed

    def loss(self, trust: Trust, bias: Floats, worth: tuple[float, ...]) -> float:
        """The mean listwise loss."""
        logits = trust.light * self.light + trust.opinion * self.opinion + trust.correction * self.correction + bias
        scores = np.where(self.real, utility_of(logits + trust.told * self.told[..., None], worth), -np.inf)
        total = np.logaddexp.reduce(scores, axis=1, keepdims=True)
        return float(-(self.share * np.where(self.real, scores - total, 0.0)).sum(axis=1).mean())


def _listwise(scores: Floats, gains: Floats) -> float:
    """Cross-entropy between what was useful and a softmax."""
    share = np.maximum(gains, 0.0)
    return float(-(share / max(share.sum(), 1e-9) * (scores - np.logaddexp.reduce(scores))).sum())
