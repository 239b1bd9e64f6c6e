"""What a batch has got wrong: the order of candidates, their outcomes, and which action comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid

from ranker.second.config import LossWeights
from ranker.second.network import SecondNet
from ranker.second.vocabulary import UNKNOWN


@dataclass(frozen=True)
class Truth:
    """What came of a batch, [batch, candidates] beside the candidates.

    Args:
        request: row of the request.
        real: the rest is padding.
        share: of a request's usefulness, 1 in all over its candidates; 0 for what was of no use.
        outcomes: [batch, candidates, HEADS].
        offered: whether outcomes are known.
        next_action: [batch, events] numbers, 0 where nothing is asked.
        answer: [batch, asked] number of the most useful action, 0 for padding.
    """

    request: Tensor
    real: Tensor
    share: Tensor
    outcomes: Tensor
    offered: Tensor
    next_action: Tensor
    answer: Tensor


def utility_logit(logits: Tensor, worth: Sequence[float]) -> Tensor:
    """`ranker.second.weights.utility_of` for training: log-odds [...] of the expected worth.

    Args:
        logits: [..., HEADS].
    """
    gains, losses = logits.new_tensor([max(w, 0.0) for w in worth]), logits.new_tensor([max(-w, 0.0) for w in worth])
    won, lost = logsigmoid(logits), logsigmoid(-logits)
    upper = torch.cat([won + gains.log(), lost + losses.log()], dim=-1).logsumexp(dim=-1)
    lower = torch.cat([lost + gains.log(), won + losses.log()], dim=-1).logsumexp(dim=-1)
    return upper - lower


def listwise(scores: Tensor, truth: Truth) -> Tensor:
    """Cross-entropy between what was useful and a softmax over each request's candidates, mean over requests."""
    real = truth.real
    values, requests, share = scores[real], truth.request[real], truth.share[real]
    count = int(requests.max()) + 1
    highest = values.new_full((count,), -1e30).scatter_reduce(0, requests, values.detach(), "amax")
    total = values.new_zeros(count).index_add(0, requests, (values - highest[requests]).exp())
    log_share = values - highest[requests] - total[requests].log()
    return -(share * log_share).sum() / count


def outcome_loss(logits: Tensor, truth: Truth, trained: Tensor) -> Tensor:
    """Mean cross-entropy per head over what was offered.

    Args:
        trained: bool [HEADS].
    """
    known = truth.real & truth.offered
    if not bool(known.any()) or not bool(trained.any()):
        return logits.sum() * 0.0
    found = logits[known][:, trained]
    return binary_cross_entropy_with_logits(found, truth.outcomes[known][:, trained].to(found.dtype))


def next_action_loss(
    net: SecondNet, hidden: Tensor, wanted: Tensor, shares: Tensor, full: int, sampled: int,
    generator: torch.Generator, smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Cross-entropy over all actions, or over a sample with the correction log q for how likely each is drawn.

    Args:
        hidden: [batch, events, dim].
        wanted: [batch, events], 0 where nothing is asked.
        shares: [actions] chances by which negatives are drawn; they begin at number UNKNOWN.
        full: most actions for which all are scored.
        sampled: negatives that the whole batch shares.
        smoothing: share of the wanted that all actions get alike, where all are scored.
    """
    asked = wanted >= UNKNOWN
    if not bool(asked.any()):
        return hidden.sum() * 0.0
    states, numbers = hidden[asked], wanted[asked]
    if len(shares) <= full:
        logits = net.next_action(states)[:, UNKNOWN:].float()
        return cross_entropy(logits, numbers - UNKNOWN, label_smoothing=smoothing)
    drawn = torch.multinomial(shares.cpu(), sampled, replacement=True, generator=generator).to(numbers.device) + UNKNOWN
    log_q = (shares.to(numbers.device) * sampled).log()
    own = (states * net.actions(numbers)).sum(dim=-1) * net.next_scale + net.next_bias[numbers]
    others = net.next_action(states, drawn).float() - log_q[drawn - UNKNOWN]
    others = others.masked_fill(drawn[None, :] == numbers[:, None], -1e30)
    # what came next is always among them, so only the drawn stand for more than themselves
    logits = torch.cat([own.float()[:, None], others], dim=1)
    return cross_entropy(logits, torch.zeros_like(numbers))


def joined(parts: tuple[Tensor, Tensor, Tensor, Tensor], weights: LossWeights) -> Tensor:
    """The loss that is minimised."""
    of = (weights.listwise, weights.outcomes, weights.answer, weights.next_action)
    return torch.stack([weight * part for weight, part in zip(of, parts, strict=True)]).sum()
