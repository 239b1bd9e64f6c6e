"""Cross-entropy of what comes next at every event: against all items, or against a corrected sample of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.last_item.packing import Packed
from training.last_item.sequences import UNKNOWN
from training.last_item.settings import FitSettings
from training.last_item.transitions import Floats32

PART_LOGITS = 2_000_000
"""Logits held at once, 8 MB: a matrix of all of them would be fetched from the system and given back every step."""


class Output(NamedTuple):
    """What turns states into logits: `states @ table.T + bias`.

    Args:
        states: [events, width].
        table: [items, width], without code 0.
        bias: [items].
    """

    states: Tensor
    table: Tensor
    bias: Tensor

    def logits(self) -> Tensor:
        """[events, items]."""
        return torch.addmm(self.bias, self.states, self.table.T)


class Network(Protocol):
    """A causal encoder with a score for every item."""

    def __call__(self, codes: Tensor, times_s: Tensor) -> Tensor:
        """States after each event [windows, length, width], of items [windows, length] padded at the end."""
        ...

    def output(self, states: Tensor) -> Output:
        """What gives the logits of all items after some events.

        Args:
            states: [events, width].
        """
        ...


@dataclass(frozen=True)
class Negatives:
    """The distribution that negatives are drawn from.

    Args:
        shares: [items].
    """

    shares: Tensor
    log_shares: Tensor

    @staticmethod
    def by_popularity(popularity: Floats32) -> Negatives:
        """Half as often as they happen, half evenly: rare items are corrected too.

        Args:
            popularity: [1 + items] shares.
        """
        mixed = 0.5 * popularity[1:].astype(np.float64) + 0.5 / max(len(popularity) - 1, 1)
        shares = torch.from_numpy(mixed / mixed.sum())
        return Negatives(shares, shares.log().float())

    def draw(self, count: int) -> Tensor:
        """Places [count] of items, with replacement."""
        return torch.multinomial(self.shares, count, replacement=True)


def next_item_loss(network: Network, packed: Packed, negatives: Negatives, settings: FitSettings) -> tuple[Tensor, int]:
    """Mean loss over the events that are foretold, and how many those are.

    Unknown items are read but never foretold.
    """
    codes = torch.from_numpy(packed.codes).long()
    states = network(codes[:, :-1], torch.from_numpy(packed.times_s)[:, :-1])
    targets = codes[:, 1:]
    foretold = targets != UNKNOWN
    output, answers = network.output(states[foretold]), targets[foretold] - 1
    if len(output.table) <= settings.full_softmax:
        return full_loss(output, answers), len(answers)
    return sampled_loss(output, answers, negatives, settings.sampled), len(answers)


def full_loss(output: Output, answers: Tensor) -> Tensor:
    """Mean cross-entropy among all items.

    Args:
        answers: places of items, [events].
    """
    found: Tensor = _InParts.apply(*output, answers)  # type: ignore[no-untyped-call]
    return found


def sampled_loss(output: Output, answers: Tensor, negatives: Negatives, count: int) -> Tensor:
    """Mean cross-entropy against a sample: each negative's logit less the log of how often it is expected in it.

    So the sum over the sample is an unbiased estimate of the softmax's sum over all other items (Bengio and
    Senécal, 2008).

    Args:
        answers: places of items, [events].
        count: negatives, shared by the batch; one that is an event's own answer is left out for that event.
    """
    drawn = negatives.draw(count)
    others = Output(output.states, output.table[drawn], output.bias[drawn]).logits()
    others = others - (negatives.log_shares[drawn] + float(np.log(count)))
    others = others.masked_fill(answers[:, None] == drawn, -torch.inf)
    own = (output.states * output.table[answers]).sum(dim=1) + output.bias[answers]
    nothing = torch.zeros(len(answers), dtype=torch.long)
    loss: Tensor = functional.cross_entropy(torch.cat([own[:, None], others], dim=1), nothing)
    return loss


class _InParts(torch.autograd.Function):
    """Cross-entropy with its gradients taken on the way, part by part, so that few logits exist at a time."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, table: Tensor, bias: Tensor, answers: Tensor) -> Tensor:
        step = max(1, PART_LOGITS // len(table))
        room = torch.empty(min(step, len(states)), len(table))
        by_state, by_table, by_bias = torch.empty_like(states), torch.zeros_like(table), torch.zeros_like(bias)
        total = states.new_zeros(())
        for start in range(0, len(states), step):
            part, own = states[start : start + step], answers[start : start + step, None]
            shares = torch.addmm(bias, part, table.T, out=room[: len(part)])
            highest = shares.amax(dim=1, keepdim=True)
            total -= (shares.gather(1, own) - highest).sum()
            sums = shares.sub_(highest).exp_().sum(dim=1, keepdim=True)
            total += sums.log().sum()
            shares.div_(sums).scatter_add_(1, own, torch.full_like(sums, -1.0))
            torch.mm(shares, table, out=by_state[start : start + step])
            by_table.addmm_(shares.T, part)
            by_bias += shares.sum(dim=0)
        ctx.save_for_backward(by_state, by_table, by_bias)
        ctx.events = max(len(states), 1)
        mean: Tensor = total / ctx.events
        return mean

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        scale = above[0] / ctx.events
        return (*(gradient * scale for gradient in ctx.saved_tensors), None)
