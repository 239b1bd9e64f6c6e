"""The plain baseline: item and position embeddings, causal attention, output tied to the item embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.last_item.loss import Output


class SasRec(nn.Module):
    """Self-attentive sequential recommendation (Kang and McAuley, 2018), pre-normed, with all items as negatives.

    Args:
        items: in the vocabulary; code 0 is any other.
        longest: events that a window has at most.
    """

    def __init__(self, items: int, width: int, layers: int, heads: int, longest: int, dropout: float) -> None:
        super().__init__()
        self.items = nn.Embedding(items + 1, width)
        self.positions = nn.Embedding(longest, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.bias = torch.zeros(items + 1)
        for weights in (self.items.weight, self.positions.weight):
            nn.init.normal_(weights, std=0.02)

    def forward(self, codes: Tensor, times_s: Tensor) -> Tensor:  # noqa: ARG002
        """States after each event, [windows, length, width].

        Args:
            codes: [windows, length], padded at the end.
            times_s: not looked at.
        """
        places = torch.arange(codes.shape[1], device=codes.device)
        states = self.dropout(self.items(codes) + self.positions(places))
        for block in self.blocks:
            states = block(states)
        normed: Tensor = self.norm(states)
        return normed

    def output(self, states: Tensor) -> Output:
        """What gives the logits of all items."""
        return Output(states, self.items.weight[1:], self.bias[1:])


class Block(nn.Module):
    """Attention to what came before, then two linear maps."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.before_attention, self.before_wide = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor) -> Tensor:
        """States [windows, length, width]: padding at the end is seen by nothing before it."""
        windows, length, width = states.shape
        parts = self.into(self.before_attention(states)).view(windows, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        rate = self.rate if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        states = states + self.dropout(self.out(seen.transpose(1, 2).reshape(windows, length, width)))
        widened: Tensor = states + self.dropout(self.wide(self.before_wide(states)))
        return widened
