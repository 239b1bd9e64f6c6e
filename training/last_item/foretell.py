"""What a trained network says of histories, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from training.last_item.loss import Network
from training.last_item.packing import batches, last_events, pack
from training.last_item.sequences import Places, Ragged
from training.last_item.split import Queries
from training.last_item.transitions import Floats32

Foretell = Callable[[Ragged], Floats32]
"""Probabilities of every item being next, [histories, 1 + items]; column 0 is 0."""

MOST_AT_ONCE = 3_000_000
"""Probabilities held at once, 12 MB."""

_EVENTS_AT_ONCE = 8192


def in_parts(queries: Queries, items: int) -> Iterator[tuple[Places, Queries]]:
    """The queries in parts for which all probabilities fit into memory, with their rows."""
    step = max(1, MOST_AT_ONCE // (items + 1))
    for start in range(0, len(queries), step):
        rows = np.arange(start, min(start + step, len(queries)))
        yield rows, queries.rows(rows)


def foretell_with(network: Network, items: int, longest: int) -> Foretell:
    """Asks a network, in evaluation mode and without gradients."""

    def foretell(histories: Ragged) -> Floats32:
        last = last_events(histories, longest)
        found = np.zeros((len(histories), 1 + items), np.float32)
        with _judging(network), torch.inference_mode():
            for rows in batches(last, _EVENTS_AT_ONCE):
                found[rows, 1:] = _probabilities(network, last, rows)
        return found

    return foretell


def _probabilities(network: Network, histories: Ragged, rows: Places) -> Floats32:
    """[rows, items], without code 0."""
    packed = pack(histories, rows)
    states = network(torch.from_numpy(packed.codes).long(), torch.from_numpy(packed.times_s))
    ends = states[torch.arange(len(rows)), torch.from_numpy(packed.lengths - 1)]
    return network.output(ends).logits().softmax(dim=-1).numpy()


@contextmanager
def _judging(network: Network) -> Iterator[None]:
    if not isinstance(network, nn.Module):
        yield
        return
    was = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was)
