"""Attention whose keys can be kept: rotated by their own place and time, and a candidate's own term merged exactly."""

from __future__ import annotations

from math import exp, log, pi

import torch
from torch import Tensor

MASKED = -1e30
SHORTEST_S, LONGEST_S = 30.0, 60 * 86400.0
"""Periods of the time's rotation."""
LONGEST_PLACE = 10_000.0


def frequencies(head_dim: int) -> Tensor:
    """[head_dim / 2] angles per step: half of the pairs turn with an event's index, half with its time in seconds."""
    pairs = head_dim // 2
    by_time = pairs // 2
    by_place = pairs - by_time
    place = [LONGEST_PLACE ** (-pair / by_place) for pair in range(by_place)]
    span = log(LONGEST_S / SHORTEST_S)
    time = [2 * pi / SHORTEST_S * exp(-span * pair / max(by_time - 1, 1)) for pair in range(by_time)]
    return torch.tensor([*place, *time], dtype=torch.float64)


def turns(index: Tensor, seconds: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines [..., head_dim / 2] of rotations.

    Args:
        index: [...] place within the window.
        seconds: [...] float64, since the window's first event.
        rates: of `frequencies`.
    """
    by_time = len(rates) // 2
    by_place = len(rates) - by_time
    angles = torch.cat(
        [index.double()[..., None] * rates[:by_place], seconds.double()[..., None] * rates[by_place:]], dim=-1
    )
    return angles.cos().float(), angles.sin().float()


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotates the pairs (first half, second half) of each head.

    Args:
        heads: [..., heads, head_dim].
        cosines, sines: [..., head_dim / 2], the same for all heads.
    """
    first, second = heads.chunk(2, dim=-1)
    cosines, sines = cosines[..., None, :].to(heads.dtype), sines[..., None, :].to(heads.dtype)
    return torch.cat([first * cosines - second * sines, first * sines + second * cosines], dim=-1)


def attend_causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Each of the last events sees itself and what came before it.

    Args:
        query: [batch, new, heads, head_dim].
        key, value: [batch, past + new, heads, head_dim].
    """
    new, seen = query.shape[1], key.shape[1]
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    if new == seen:
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    else:
        place = torch.arange(seen, device=query.device)
        visible = place[None, :] <= place[seen - new :, None]
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value, visible)
    return found.transpose(1, 2)


def attend_history(query: Tensor, key: Tensor, value: Tensor, prefix: Tensor | None) -> tuple[Tensor, Tensor]:
    """What candidates read of the history: values, and the log of the sum of exponentials.

    Args:
        query: [batch, candidates, heads, head_dim].
        key, value: [batch, events, heads, head_dim].
        prefix: [batch, candidates] events that each may see; None for all.

    Returns:
        [batch, candidates, heads, head_dim] and [batch, candidates, heads].
    """
    scores = torch.einsum("bmhd,bnhd->bmhn", query, key) * query.shape[-1] ** -0.5
    if prefix is not None:
        place = torch.arange(key.shape[1], device=key.device)
        hidden = place >= prefix[..., None]
        scores = scores.masked_fill(hidden[:, :, None, :], MASKED)
    if not key.shape[1]:
        return torch.zeros_like(query), torch.full(query.shape[:-1], MASKED, dtype=query.dtype, device=query.device)
    total = scores.logsumexp(dim=-1)
    weights = (scores - total[..., None]).exp()
    return torch.einsum("bmhn,bnhd->bmhd", weights, value), total


def merge_self(seen: Tensor, total: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The exact softmax over the history and the candidate itself, from the history's part.

    With z = log Σ exp over the history and s the candidate's own score, its own share is 1 / (1 + exp(z − s)).

    Args:
        seen, total: of `attend_history`.
        query, key, value: [batch, candidates, heads, head_dim] of the candidates themselves.
    """
    own = (query * key).sum(dim=-1) * query.shape[-1] ** -0.5
    share = torch.sigmoid(own - total)[..., None]
    return seen + share * (value - seen)
