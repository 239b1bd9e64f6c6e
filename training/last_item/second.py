"""The second stage's own encoder and next-action head, on histories that are items only."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ranker.second.batches import EventBatch
from ranker.second.config import Sizes
from ranker.second.network import SecondNet
from ranker.second.vocabulary import FIRST, NOTHING
from training.last_item.loss import Output

_KIND = FIRST
"""The one kind of event there is."""


class ItemNet(nn.Module):
    """A SecondNet that is asked which action comes next.

    Args:
        items: in the vocabulary; an item's code is 1 less than its number as an action, since code 0 is any other.
        width, layers, heads, longest: of the encoder.
    """

    def __init__(self, items: int, width: int, layers: int, heads: int, longest: int, dropout: float) -> None:
        super().__init__()
        sizes = Sizes(
            dim=width, layers=layers, heads=heads, feed_forward=4 * width, window=longest + longest % 2, terms=1,
            session_bits=1,
        )  # fmt: skip
        one = FIRST + 1
        rows = {"actions": items + FIRST, "kinds": one, "surfaces": FIRST, "targets": FIRST, "words": FIRST}
        self.net = SecondNet(sizes, rows, columns=0, dropout=dropout)

    def forward(self, codes: Tensor, times_s: Tensor) -> Tensor:
        """States after each event, [windows, length, width].

        Args:
            codes: [windows, length], padded at the end.
            times_s: float64 [windows, length].
        """
        nothing = torch.full_like(codes, NOTHING)
        seconds = (times_s - times_s[:, :1]).clamp_min(0.0)
        gap_s = seconds.diff(dim=1, prepend=seconds[:, :1]).clamp_min(0.0).float()
        first = torch.zeros_like(codes)
        first[:, 0] = 1
        events = EventBatch(
            action=codes + 1, kind=torch.full_like(codes, _KIND), surface=nothing, target=nothing,
            terms=nothing[..., None], session=nothing, fresh=first, gap_s=gap_s, seconds=seconds,
        )  # fmt: skip
        states: Tensor = self.net.encode(events)[1]
        return states

    def begin(self, embeddings: Tensor) -> None:
        """Sets the embeddings of the items.

        Args:
            embeddings: [items, width].
        """
        with torch.no_grad():
            self.net.actions.weight[FIRST:] = embeddings

    def output(self, states: Tensor) -> Output:
        """What gives the logits of all items: those of the net's next-action head that are items."""
        net = self.net
        return Output(states * net.next_scale, net.actions.weight[FIRST:], net.next_bias[FIRST:])
