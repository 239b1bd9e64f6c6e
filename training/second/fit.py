"""Fits the second stage: batches in order of time, early stopping on the last days, and a state that can be kept.

All randomness follows from the seed and the place in the run, but for dropout, whose generator's state is part of what
is kept: a run that was ended and taken up again has the weights of one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ranker.second.batches import candidate_batch, event_batch, moved
from ranker.second.config import HEADS, TrainSecond
from ranker.second.network import CandidateBatch, EventBatch, SecondNet
from ranker.second.tokens import EventTokens
from ranker.second.vocabulary import FIRST
from ranker.second.weights import utility_of
from training.second.batching import (
    Part,
    Waste,
    choose_candidates,
    corrupt_events,
    corrupt_form,
    parts_of,
    plan_batches,
)
from training.second.dataset import Form, Question, Window
from training.second.losses import Truth, joined, listwise, next_action_loss, outcome_loss, utility_logit


@dataclass(frozen=True)
class Run:
    """What does not change while fitting.

    Args:
        split_s: questions from here on are held out.
        trained: per head, whether such an outcome was seen.
        worth: of each head.
        shares: [actions] how often each comes next.
    """

    windows: Sequence[Window]
    settings: TrainSecond
    split_s: float
    trained: tuple[bool, ...]
    worth: tuple[float, ...]
    shares: Tensor
    device: torch.device
    autocast: bool


@dataclass(frozen=True)
class Report:
    """How far a fit is.

    Args:
        loss: mean of the recent batches.
        tokens_s: tokens learned from per second of late.
        left_s: seconds to the last epoch, at this rate.
    """

    epoch: int
    epochs: int
    batch: int
    batches: int
    loss: float
    tokens_s: float
    left_s: float


@dataclass
class State:
    """What changes, besides the weights.

    Args:
        epoch, batch: the place of the next batch.
        best: figure of the best epoch so far, and `stale` epochs since.
        history: figures by epoch.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    best: float = -1.0
    best_epoch: int = -1
    stale: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    done: bool = False


def decide_split(windows: Sequence[Window], held_out: float) -> float:
    """The time from which questions are held out: the last share of them."""
    times = np.sort([question.now_s for window in windows for question in window.questions])
    return float(times[min(int(len(times) * (1.0 - held_out)), len(times) - 1)]) if len(times) else math.inf


class Fit:
    """A fit at some place of its run."""

    def __init__(self, net: SecondNet, run: Run) -> None:
        self.net, self.run = net.to(run.device), run
        self.state = State()
        settings = run.settings
        self.parts = parts_of(run.windows, run.split_s, max(1, settings.batch_tokens // (2 * (settings.negatives + 1))))
        self.waste = Waste(0, 0)
        self.best: dict[str, Tensor] = {}
        self.average = self._weights() if settings.average else {}
        self.optimizer = torch.optim.AdamW(_groups(net, settings), lr=settings.rate, betas=(0.9, 0.98))
        self._batches: list[list[Part]] = []
        self._plan()

    def _plan(self) -> None:
        self._batches, self.waste = plan_batches(
            self.run.windows, self.parts, self.run.settings, self.state.epoch
        )  # fmt: skip

    def take_up(
        self, state: State, net: dict[str, Tensor], best: dict[str, Tensor], average: dict[str, Tensor],
        optimizer: dict[str, Any], random: Tensor, cuda: Tensor | None,
    ) -> None:  # fmt: skip
        """Goes to where another fit of the same run was."""
        self.state = state
        self.net.load_state_dict(net)
        self.best = {name: tensor.to(self.run.device) for name, tensor in best.items()}
        self.average = {name: tensor.to(self.run.device) for name, tensor in average.items()}
        self.optimizer.load_state_dict(optimizer)
        torch.set_rng_state(random)
        if cuda is not None and self.run.device.type == "cuda":
            torch.cuda.set_rng_state(cuda, self.run.device)
        self._plan()

    @property
    def batches(self) -> int:
        """In this epoch."""
        return len(self._batches)

    def go(
        self, tell: Callable[[Report], None] = lambda _: None, keep: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Fits from where the state is to the end.

        Args:
            tell: hears of every batch.
            keep: called after every epoch, and when `checkpoint_s` have passed since.
        """
        settings, recent = self.run.settings, Recent(clock)
        kept_s = clock()
        while not self.state.done:
            while self.state.batch < self.batches:
                loss, tokens = self._step(self._batches[self.state.batch])
                self.state.batch += 1
                self.state.step += 1
                tell(recent.report(loss, tokens, self.state, self.batches, settings.epochs))
                if clock() - kept_s >= settings.checkpoint_s:
                    keep()
                    kept_s = clock()
            self._end_epoch()
            keep()
            kept_s = clock()
        self.net.load_state_dict(self.best)

    def _end_epoch(self) -> None:
        state, settings = self.state, self.run.settings
        own = self._weights()
        if settings.average:
            self.net.load_state_dict(self.average)
        figures = judge(self.net, self.run)
        state.history.append(figures)
        if figures["score"] > state.best:
            state.best, state.best_epoch, state.stale = figures["score"], state.epoch, 0
            self.best = self._weights()
        else:
            state.stale += 1
        self.net.load_state_dict(own)
        state.epoch, state.batch = state.epoch + 1, 0
        state.done = state.epoch >= settings.epochs or state.stale >= settings.patience
        self._plan()

    def _weights(self) -> dict[str, Tensor]:
        """A copy of the net's tensors."""
        return {name: tensor.detach().clone() for name, tensor in self.net.state_dict().items()}

    def _note_average(self) -> None:
        """Moves the average towards the weights; early on by more, so that it forgets where they began."""
        decay = min(self.run.settings.average, (1.0 + self.state.step) / (10.0 + self.state.step))
        with torch.no_grad():
            for name, tensor in self.net.state_dict().items():
                self.average[name].lerp_(tensor, 1.0 - decay)

    def _rate(self) -> float:
        """Rises linearly, then falls as a cosine to a twentieth."""
        settings = self.run.settings
        whole = max(settings.epochs * self.batches, 1)
        warm = max(int(settings.warmup * whole), 1)
        if self.state.step < warm:
            return settings.rate * (self.state.step + 1) / warm
        along = min((self.state.step - warm) / max(whole - warm, 1), 1.0)
        return settings.rate * (0.05 + 0.95 * 0.5 * (1.0 + math.cos(math.pi * along)))

    def _step(self, batch: list[Part]) -> tuple[float, int]:
        self.net.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate()
        made = make_batch(self.run, batch, (self.run.settings.seed, self.state.epoch, self.state.batch))
        with torch.autocast(self.run.device.type, torch.bfloat16, enabled=self.run.autocast):
            loss = batch_loss(self.net, self.run, made, self.state.step)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        if self.run.settings.average:
            self._note_average()
        return float(loss.detach()), made.tokens


def _groups(net: SecondNet, settings: TrainSecond) -> list[dict[str, Any]]:
    """Matrices decay, the rest does not."""
    matrices = [parameter for parameter in net.parameters() if parameter.ndim > 1]
    rest = [parameter for parameter in net.parameters() if parameter.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]


class Recent:
    """Loss and rate of the last batches."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_s = clock()
        self._loss = self._tokens = self._batch_s = 0.0
        self._weight = 0.0

    def report(self, loss: float, tokens: int, state: State, batches: int, epochs: int) -> Report:
        """Takes a batch in."""
        now_s = self._clock()
        taken_s, self._last_s = now_s - self._last_s, now_s
        self._weight = 0.98 * self._weight + 0.02
        share = 0.02 / self._weight
        self._loss += share * (loss - self._loss)
        self._tokens += share * (tokens - self._tokens)
        self._batch_s += share * (taken_s - self._batch_s)
        left = (epochs - state.epoch) * batches - state.batch
        rate = self._tokens / max(self._batch_s, 1e-9)
        return Report(state.epoch + 1, epochs, state.batch, batches, self._loss, rate, left * self._batch_s)


# ---- batches


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
        asked.append([(question, picked) for question, picked, _ in chosen])
    events = event_batch(histories)
    candidates, real = candidate_batch(rows) if any(rows) else (None, torch.zeros(len(batch), 0, dtype=torch.bool))
    truth = _truth(run, batch, asked, candidates, real, events.action.shape[1])
    tokens = sum(map(len, histories)) + int(real.sum())
    moved_candidates = None if candidates is None else moved(candidates, run.device)
    return Made(moved(events, run.device), moved_candidates, moved(truth, run.device), tokens)


Chosen = tuple[Question, np.ndarray, Form]


def _chosen(question: Question, settings: TrainSecond, random: np.random.Generator) -> Chosen:
    hinted = question.hint is not None and random.random() < settings.hint_share
    form = question.hint if hinted and question.hint is not None else question.plain
    rows = choose_candidates(question, form, settings.negatives, random)
    return question, rows, corrupt_form(form, rows, settings, random)


def _truth(
    run: Run, batch: Sequence[Part], asked: Sequence[Sequence[tuple[Question, np.ndarray]]],
    candidates: CandidateBatch | None, real: Tensor, events: int,
) -> Truth:  # fmt: skip
    shape = tuple(real.shape)
    share, offered = np.zeros(shape, np.float32), np.zeros(shape, np.bool_)
    outcomes = np.zeros((*shape, len(HEADS)), np.float32)
    wanted = np.zeros((len(batch), events), np.int64)
    for row, (part, questions) in enumerate(zip(batch, asked, strict=True)):
        window = run.windows[part.window]
        if part.counts:
            following = np.where(window.tokens["time_s"] < run.split_s, window.next_action, 0)
            wanted[row, : len(following)] = following
        filled = 0
        for question, picked in questions:
            here = slice(filled, filled + len(picked))
            filled = here.stop
            gains = np.maximum(question.gains[picked], 0.0)
            share[row, here] = gains / max(gains.sum(), 1e-9)
            offered[row, here], outcomes[row, here] = question.offered[picked], question.outcomes[picked]
    request = torch.zeros(shape, dtype=torch.int64) if candidates is None else candidates.request
    return Truth(
        request, real, torch.from_numpy(share), torch.from_numpy(outcomes), torch.from_numpy(offered),
        torch.from_numpy(wanted),
    )  # fmt: skip


def batch_loss(net: SecondNet, run: Run, made: Made, step: int) -> Tensor:
    """The loss that is minimised."""
    cache, hidden = net.encode(made.events)
    nothing = hidden.sum() * 0.0
    ordered, foretold = nothing, nothing
    if made.candidates is not None:
        logits = net.score(made.candidates, cache, made.candidates.index).float()
        ordered = listwise(utility_logit(logits, run.worth), made.truth)
        foretold = outcome_loss(logits, made.truth, torch.tensor(run.trained, device=logits.device))
    generator = torch.Generator().manual_seed(run.settings.seed * 1_000_003 + step)
    settings = run.settings
    following = next_action_loss(
        net, hidden, made.truth.next_action, run.shares, settings.full_softmax, settings.sampled, generator
    )
    return joined((ordered, foretold, following), settings.losses)


# ---- judging


@torch.inference_mode()
def judge(net: SecondNet, run: Run) -> dict[str, float]:
    """Figures on the held-out questions, over the candidates that there are vectors of.

    Returns:
        `score` is the mean reciprocal rank; the light stage's own figures are beside it.
    """
    net.eval()
    found: dict[str, list[float]] = {"hr@1": [], "score": [], "light_hr@1": [], "light_score": []}
    for window in run.windows:
        held = [question for question in window.questions if question.now_s >= run.split_s]
        if not held:
            continue
        cache, _ = net.encode(moved(event_batch([window.tokens]), run.device))
        for question in held:
            form = question.plain
            origin_s = float(window.tokens["time_s"][0]) if len(window.tokens) else form.request.time_s
            batch, _ = candidate_batch([[(form.request, form.candidates, question.index, origin_s)]])
            batch = moved(batch, run.device)
            scores = utility_of(net.score(batch, cache, batch.index)[0].double().cpu().numpy(), run.worth)
            for name, values in (("", scores), ("light_", form.candidates.light)):
                rank = _rank(values, question.gains)
                found[f"{name}hr@1"].append(float(rank == 1))
                found[f"{name}score"].append(1.0 / rank)
    return {name: float(np.mean(values)) if values else 0.0 for name, values in found.items()}


def _rank(scores: np.ndarray, gains: np.ndarray) -> int:
    """Place of the best of what was most useful."""
    best = scores[gains == gains.max()].max()
    return int((scores > best).sum()) + 1


def next_shares(windows: Sequence[Window], actions: int) -> Tensor:
    """[actions] smoothed shares of what comes next."""
    counts = np.ones(actions)
    for window in windows:
        numbers = window.next_action[window.next_action >= FIRST] - FIRST
        counts += np.bincount(numbers, minlength=actions)
    return torch.from_numpy(counts / counts.sum())
