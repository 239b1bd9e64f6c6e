"""Fits the second stage: batches in order of time, early stopping on the last days, and a state that can be kept.

All randomness follows from the seed and the place in the run, but for dropout, whose generator's state is part of what
is kept: a run that was ended and taken up again has the weights of one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ranker.second.config import TrainSecond
from ranker.second.network import SecondNet
from training.errors import TrainingError
from training.second.batching import (
    Part,
    Waste,
    parts_of,
    plan_batches,
)
from training.second.held_out import Trusts, answers, apply_trusts, bias_of, figures, find_trusts
from training.second.made import batch_loss, make_batch
from training.second.run import Run


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
        phase_step: batches since histories alone were done with, or since the beginning.
        best: listwise loss of the best epoch so far, and `stale` epochs since.
        trusts: how far its parts can be trusted.
        history: figures by epoch.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    phase_step: int = 0
    best: float = 1e30
    best_epoch: int = -1
    stale: int = 0
    trusts: Trusts = field(default_factory=Trusts)
    history: list[dict[str, float]] = field(default_factory=list)
    done: bool = False


class Fit:
    """A fit at some place of its run."""

    def __init__(self, net: SecondNet, run: Run) -> None:
        self.net, self.run = net.to(run.device), run
        self.state = State()
        settings = run.settings
        self.parts = parts_of(run.windows, run.split_s, max(1, settings.batch_tokens // (2 * (settings.negatives + 1))))
        self.histories = [
            Part(number, (), True) for number, window in enumerate(run.windows) if window.next_action.any()
        ]
        self.waste = Waste(0, 0)
        self.best: dict[str, Tensor] = {}
        self.average = self._weights() if settings.average else {}
        self.optimizer = torch.optim.AdamW(_groups(net, settings), lr=settings.rate, betas=(0.9, 0.98))
        self._batches: list[list[Part]] = []
        self._plan()

    @property
    def alone(self) -> bool:
        """Whether histories are still learned from without questions: which action comes next."""
        return self.state.epoch < self.run.settings.pretrain

    def _plan(self) -> None:
        parts = self.histories if self.alone else self.parts
        self._batches, self.waste = plan_batches(self.run.windows, parts, self.run.settings, self.state.epoch)

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

        Raises:
            TrainingError: the loss is no number any more.
        """
        settings, recent = self.run.settings, Recent(clock)
        kept_s = clock()
        while not self.state.done:
            while self.state.batch < self.batches:
                loss, tokens = self._step(self._batches[self.state.batch])
                if not math.isfinite(loss):
                    where = f"epoch {self.state.epoch + 1}, batch {self.state.batch + 1}"
                    raise TrainingError(f"{where}: the loss is {loss}: training.rate {settings.rate} may be too high")
                self.state.batch += 1
                self.state.step += 1
                self.state.phase_step += 1
                tell(recent.report(loss, tokens, self.state, self.batches, self.epochs))
                if clock() - kept_s >= settings.checkpoint_s:
                    keep()
                    kept_s = clock()
            self._end_epoch()
            keep()
            kept_s = clock()
        self.net.load_state_dict(self.best)
        apply_trusts(self.net, self.state.trusts)

    @property
    def epochs(self) -> int:
        """At most, those on histories alone among them."""
        return self.run.settings.pretrain + self.run.settings.epochs

    def _end_epoch(self) -> None:
        state = self.state
        if self.alone:
            state.phase_step = 0 if state.epoch + 1 == self.run.settings.pretrain else state.phase_step
        else:
            self._compare()
        state.epoch, state.batch = state.epoch + 1, 0
        state.done = state.epoch >= self.epochs or state.stale >= self.run.settings.patience
        self._plan()

    def _compare(self) -> None:
        """Judges the epoch on the held-out questions, and keeps its weights where they are the best so far."""
        state, own = self.state, self._weights()
        if self.run.settings.average:
            self.net.load_state_dict(self.average)
        told, bias = list(answers(self.net, self.run, hinted=True)), bias_of(self.net)
        trusts = find_trusts(told, bias, self.run)
        found = figures(told, trusts, bias, self.run)
        state.history.append(found)
        if found["loss"] < state.best:
            state.best, state.best_epoch, state.stale = found["loss"], len(state.history) - 1, 0
            self.best, state.trusts = self._weights(), trusts
        else:
            state.stale += 1
        self.net.load_state_dict(own)

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
        whole = max((settings.pretrain if self.alone else settings.epochs) * self.batches, 1)
        warm = max(int(settings.warmup * whole), 1)
        if self.state.phase_step < warm:
            return settings.rate * (self.state.phase_step + 1) / warm
        along = min((self.state.phase_step - warm) / max(whole - warm, 1), 1.0)
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
