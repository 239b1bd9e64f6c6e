"""A network's weights as serving multiplies by them: norms' weights, scales and biases are in what follows.

The pairs that attention rotates lie side by side, so that a rotation is one multiplication of complex numbers; keys in
pages are in that order too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ranker.second.network import Block, SecondNet


@dataclass(frozen=True)
class FoldedBlock:
    """One block, [in, out] each.

    Args:
        joined: to queries (scaled), keys and values.
    """

    joined: Tensor
    out: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor


class Trust(NamedTuple):
    """How far each of PARTS is trusted."""

    light: float
    opinion: float
    correction: float
    told: float


@dataclass(frozen=True)
class Folded:
    """All that scoring needs beside the embeddings.

    Args:
        judge: [dim, HEADS] from the last block's output.
        light_in: [in, dim + HIDDEN] of the light stage's vector, to a token's part and to the opinion; in float32 as
            all that follows.
        light_out: [dim, dim] of a token's part.
        opinion_within, opinion_out: [in, out].
        spoken: [dim, dim] of what a request says.
        happened: [session bits + 4, dim] of an event's session, time since the one before, and one.
        asked: [session bits + 4 + 1 + CLOCK, dim] the same of a request, whether something is typed, its clock, and all
            that its candidates get too.
        told: [dim] by which what a request made of the history is multiplied before it meets the actions.
        told_bias: [actions].
        trust: of a request's parts, where nothing is typed and where something is.
    """

    blocks: tuple[FoldedBlock, ...]
    judge: Tensor
    judge_bias: Tensor
    light_gain: Tensor
    light_in: Tensor
    light_in_bias: Tensor
    light_out: Tensor
    light_out_bias: Tensor
    opinion_within: Tensor
    opinion_within_bias: Tensor
    opinion_out: Tensor
    told: Tensor
    told_bias: Tensor
    trust: tuple[Trust, Trust]
    spoken: Tensor
    happened: Tensor
    asked: Tensor


def folded(net: SecondNet) -> Folded:
    """Of a network whose parameters are float32 or bfloat16; large matrices keep that format."""
    happened = torch.cat([_turned(net.sessions) * net.sizes.session_bits**-0.5, _turned(net.gaps), _bias(net.gaps)])
    asked = torch.cat([happened, net.typed.detach().float()[None], _turned(net.clock)])
    asked[len(happened) - 1] += net.role.float() + net.requests.bias.float()
    return Folded(
        tuple(_block(block) for block in net.layers),
        judge=_turned(net.outcomes) * _norm(net.after),
        judge_bias=net.outcomes.bias.float(),
        light_gain=net.light.gain.float(),
        light_in=torch.cat([_turned(net.light.token_in), _turned(net.light.opinion_in)], dim=1),
        light_in_bias=torch.cat([net.light.token_in.bias, net.light.opinion_in.bias]).float(),
        light_out=_turned(net.light.token_out),
        light_out_bias=net.light.token_out.bias.float(),
        opinion_within=_turned(net.light.opinion_within),
        opinion_within_bias=net.light.opinion_within.bias.float(),
        opinion_out=_turned(net.light.opinion_out),
        told=_norm(net.after)[:, 0] * net.next_scale.float(),
        told_bias=net.next_bias.float(),
        trust=(Trust(*net.trust[0].tolist()), Trust(*net.trust[1].tolist())),
        spoken=_turned(net.requests),
        happened=happened,
        asked=asked,
    )


def _block(block: Block) -> FoldedBlock:
    kind = block.out.weight.dtype
    joined = _turned(block.query_key_value) * _norm(block.before_attention)
    dim = len(joined)
    pairs = _pairs(block.heads, block.head_dim)
    query, key, value = joined[:, :dim][:, pairs], joined[:, dim : 2 * dim][:, pairs], joined[:, 2 * dim :]
    up = _turned(block.up) * _norm(block.before_feed_forward)
    return FoldedBlock(
        torch.cat([query * block.head_dim**-0.5, key, value], dim=1).to(kind),
        _turned(block.out).to(kind), up.to(kind), block.up.bias.detach(), _turned(block.down).to(kind),
        block.down.bias.detach().float(),
    )  # fmt: skip


def _norm(norm: torch.nn.RMSNorm) -> Tensor:
    """What a norm multiplies by beside one over the length of a row."""
    weight: Tensor = norm.weight.detach().float()[:, None]
    found: Tensor = weight * float(len(weight)) ** 0.5
    return found


def _pairs(heads: int, head_dim: int) -> Tensor:
    """Channels so that those which are rotated together, half a head apart, are neighbours."""
    within = torch.arange(head_dim).view(2, -1).T.reshape(-1)
    return (torch.arange(heads)[:, None] * head_dim + within).reshape(-1)


def _turned(linear: torch.nn.Linear) -> Tensor:
    return linear.weight.detach().float().T.contiguous()


def _bias(linear: torch.nn.Linear) -> Tensor:
    return linear.bias.detach().float()[None]
