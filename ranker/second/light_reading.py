"""What the network makes of the light stage's vector and score: a part of a candidate's token, and an opinion alone.

The opinion sees neither the history nor the request, only what the light stage saw. It is learned as if it were all
there is, so that what reads the history has to add to it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from ranker.second.config import HEADS

CLAMP = 4.0
"""Spreads from the mean; what is further away says no more."""
HIDDEN = 64
"""Width of the opinion."""
DROPOUT = 0.1
"""Of the opinion at most: it is small, and needs less than what reads histories."""


class LightReading(nn.Module):
    """Reads the light stage's vectors: they say other things where something is typed, and so it is told.

    Args:
        columns: of a vector.
        dim: of a candidate's token.
        dropout: of the network that it belongs to.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, columns: int, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        width = 2 * columns + 2
        self.token_in = nn.Linear(width, dim)
        self.token_out = nn.Linear(dim, dim)
        self.opinion_in = nn.Linear(width, HIDDEN)
        self.opinion_within = nn.Linear(HIDDEN, HIDDEN)
        self.opinion_out = nn.Linear(HIDDEN, len(HEADS), bias=False)
        self.gain = nn.Parameter(torch.ones(len(HEADS)))
        self.drop = nn.Dropout(min(dropout, DROPOUT))
        self.register_buffer("mean", torch.zeros(columns + 1))
        self.register_buffer("spread", torch.ones(columns + 1))

    def known(self, features: Tensor, light: Tensor, typed: Tensor) -> Tensor:
        """[..., 2 · columns + 2]: vector and score, squeezed and scaled, what is not known, and whether it is typed.

        Args:
            features: [..., columns]; may have NaN.
            light, typed: [...].
        """
        columns = torch.cat([features, light[..., None]], dim=-1).float()
        columns = columns.sign() * columns.abs().log1p()
        missing = columns.isnan()
        scaled = ((columns - self.mean.float()) / self.spread.float()).clamp(-CLAMP, CLAMP)
        scaled = scaled.masked_fill(missing, 0.0)
        parts = [scaled, missing[..., :-1].float(), typed[..., None].float()]
        return torch.cat(parts, dim=-1).to(self.token_in.weight.dtype)

    def token(self, known: Tensor) -> Tensor:
        """Its part [..., dim] of a candidate's token."""
        part: Tensor = self.token_out(gelu(self.token_in(known)))
        return part

    def opinion(self, known: Tensor) -> Tensor:
        """Logits [..., HEADS] to be added to the light score's."""
        inner = self.drop(gelu(self.opinion_in(known)))
        logits: Tensor = self.opinion_out(self.drop(gelu(self.opinion_within(inner))))
        return logits

    def start_opinion(self) -> None:
        """Begins without an opinion, and with weights that can learn one soon."""
        self.opinion_in.reset_parameters()
        self.opinion_within.reset_parameters()
        nn.init.zeros_(self.opinion_out.weight)
