"""What the held-out questions say: how good a fit is, and how far its correction of the light stage can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ranker.second.batches import candidate_batch, event_batch, moved
from ranker.second.network import SecondNet
from ranker.second.weights import utility_of
from training.metrics import hit_rate, reciprocal_rank
from training.second.dataset import Form, Question
from training.second.run import Run

Floats = NDArray[np.float64]

STRENGTHS = tuple(step / 8 for step in range(11))
"""By which the correction may be multiplied."""


@dataclass(frozen=True)
class Answer:
    """What the network says to a held-out question.

    Args:
        logits: [candidates, HEADS].
    """

    question: Question
    form: Form
    logits: Floats


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
                yield Answer(question, form, net.score(batch, cache, batch.index)[0].double().cpu().numpy())


def judge(net: SecondNet, run: Run) -> dict[str, float]:
    """Figures on the held-out questions, over the candidates that there are vectors of.

    Returns:
        `score` is the mean reciprocal rank, `loss` the listwise one; the light stage's own figures are beside them.
    """
    found: dict[str, list[float]] = {"hr@1": [], "score": [], "loss": [], "light_hr@1": [], "light_score": []}
    for answer in answers(net, run):
        scores = utility_of(answer.logits, run.worth)
        found["loss"].append(_listwise(scores, answer.question.gains))
        for name, values in (("", scores), ("light_", answer.form.candidates.light)):
            best = (answer.question.gains == answer.question.gains.max()).astype(np.float64)
            found[f"{name}hr@1"].append(hit_rate(values, best, 1) or 0.0)
            found[f"{name}score"].append(reciprocal_rank(values, best) or 0.0)
    return {name: float(np.mean(values)) if values else 0.0 for name, values in found.items()}


@torch.no_grad()
def temper(net: SecondNet, run: Run) -> float:
    """Multiplies the correction of the light score by what suits the held-out questions best, and gives that number.

    By the listwise loss: outcomes have levels that a correction may hold however badly it orders. The heads are
    linear, so that their weights take it up: a served model knows nothing of it. A fit that has learned its examples
    by heart is drawn back to the light stage's order.
    """
    told = list(answers(net, run, hinted=True))
    if not told:
        return 1.0
    gain, bias = net.light_gain.double().cpu().numpy(), net.outcomes.bias.double().cpu().numpy()
    losses = [np.mean([_loss_at(answer, strength, gain, bias, run) for answer in told]) for strength in STRENGTHS]
    best = STRENGTHS[int(np.argmin(losses))]
    net.outcomes.weight.mul_(best)
    return best


def _loss_at(answer: Answer, strength: float, gain: Floats, bias: Floats, run: Run) -> float:
    """The listwise loss of a held-out question with the correction multiplied."""
    base = gain * answer.form.candidates.light.astype(np.float64)[:, None] + bias
    logits = base + strength * (answer.logits - base)
    return _listwise(utility_of(logits, run.worth), answer.question.gains)


def _listwise(scores: Floats, gains: Floats) -> float:
    """Cross-entropy between what was useful and a softmax."""
    share = np.maximum(gains, 0.0)
    return float(-(share / max(share.sum(), 1e-9) * (scores - np.logaddexp.reduce(scores))).sum())
