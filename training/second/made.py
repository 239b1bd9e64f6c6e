"""Batches as tensors, and their loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ranker.second.batches import CandidateBatch, EventBatch, candidate_batch, event_batch, moved
from ranker.second.config import HEADS, TrainSecond
from ranker.second.network import SecondNet
from ranker.second.tokens import EventTokens
from ranker.second.vocabulary import NOTHING
from training.second.batching import Part, choose_candidates, corrupt_events, corrupt_form
from training.second.dataset import Form, Question
from training.second.losses import Truth, joined, listwise, next_action_loss, outcome_loss, utility_logit
from training.second.run import Run

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Made:
    """A batch as tensors; without candidates where its windows have no question."""

    events: EventBatch
    candidates: CandidateBatch | None
    truth: Truth
    tokens: int


def make_batch(run: Run, batch: Sequence[Part], seeds: tuple[int, ...]) -> Made:
    """What a step learns from."""
    random = np.random.default_rng(seeds)
    settings = run.settings
    histories: list[EventTokens] = []
    rows, asked = [], []
    for part in batch:
        window = run.windows[part.window]
        histories.append(corrupt_events(window.tokens, settings, random))
        chosen = [_chosen(window.questions[place], settings, random) for place in part.questions]
        origin_s = float(window.tokens["time_s"][0]) if len(window.tokens) else None
        rows.append(
            [(form.request, form.candidates, question.index, form.request.time_s if origin_s is None else origin_s)
             for question, _, form in chosen]
        )  # fmt: skip
        asked.append([(question, picked, _answer(question.gains[picked], form)) for question, picked, form in chosen])
    events = event_batch(histories)
    candidates, real = candidate_batch(rows) if any(rows) else (None, torch.zeros(len(batch), 0, dtype=torch.bool))
    truth = _truth(run, batch, asked, candidates, real, events.action.shape[1])
    tokens = sum(map(len, histories)) + int(real.sum())
    moved_candidates = None if candidates is None else moved(candidates, run.device)
    return Made(moved(events, run.device), moved_candidates, moved(truth, run.device), tokens)


Chosen = tuple[Question, Rows, Form]


def _chosen(question: Question, settings: TrainSecond, random: np.random.Generator) -> Chosen:
    hinted = question.hint is not None and random.random() < settings.hint_share
    form = question.hint if hinted and question.hint is not None else question.plain
    rows = choose_candidates(question, form, settings.negatives, random)
    return question, rows, corrupt_form(form, rows, settings, random)


def _truth(
    run: Run, batch: Sequence[Part], asked: Sequence[Sequence[tuple[Question, Rows, int]]],
    candidates: CandidateBatch | None, real: Tensor, events: int,
) -> Truth:  # fmt: skip
    shape = tuple(real.shape)
    share, offered = np.zeros(shape, np.float32), np.zeros(shape, np.bool_)
    outcomes = np.zeros((*shape, len(HEADS)), np.float32)
    wanted = np.zeros((len(batch), events), np.int64)
    answer = np.zeros((len(batch), max(map(len, asked), default=0)), np.int64)
    for row, (part, questions) in enumerate(zip(batch, asked, strict=True)):
        window = run.windows[part.window]
        if part.counts:
            following = np.where(window.tokens["time_s"] < run.split_s, window.next_action, 0)
            wanted[row, : len(following)] = following
        filled = 0
        for place, (question, picked, useful) in enumerate(questions):
            answer[row, place] = useful
            here = slice(filled, filled + len(picked))
            filled = here.stop
            gains = np.maximum(question.gains[picked], 0.0)
            share[row, here] = gains / max(gains.sum(), 1e-9)
            offered[row, here], outcomes[row, here] = question.offered[picked], question.outcomes[picked]
    request = torch.zeros(shape, dtype=torch.int64) if candidates is None else candidates.request
    return Truth(
        request, real, torch.from_numpy(share), torch.from_numpy(outcomes), torch.from_numpy(offered),
        torch.from_numpy(wanted), torch.from_numpy(answer),
    )  # fmt: skip


def _answer(gains: NDArray[np.float64], form: Form) -> int:
    """The number of the most useful action as the form has it; 0 where none was of use."""
    best = int(gains.argmax())
    return int(form.candidates.actions[best]) if gains[best] > 0.0 else NOTHING


def batch_loss(net: SecondNet, run: Run, made: Made, step: int) -> Tensor:
    """The loss that is minimised."""
    cache, hidden = net.encode(made.events)
    nothing = hidden.sum() * 0.0
    ordered, foretold, answered = nothing, nothing, nothing
    settings = run.settings
    generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    among = run.shares, settings.full_softmax, settings.sampled, generator
    if made.candidates is not None:
        heard = net.hear(made.candidates, cache, prefix=True)
        begun = net.begin(made.candidates)
        # the opinion is learned as if it were all; what reads the history adds to it, and does not lean on it
        for logits in (begun, net.add(made.candidates, heard, begun.detach())):
            ordered = ordered + listwise(utility_logit(logits.float(), run.worth), made.truth)
            trained = torch.tensor(run.trained, device=logits.device)
            foretold = foretold + outcome_loss(logits.float(), made.truth, trained)
        answered = next_action_loss(net, heard.requests, made.truth.answer, *among, settings.smoothing)
    following = next_action_loss(net, hidden, made.truth.next_action, *among)
    return joined((ordered, foretold, answered, following), settings.losses)
