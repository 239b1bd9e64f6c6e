"""Encoding and scoring by the network itself, on any device: how a GPU serves. Not measured: no GPU was at hand.

`Forward` folds and packs for the CPU; here the network's own operations run, a page of events at a time, and the
candidates' part of them as captured graphs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ranker.second.batches import CandidateBatch, candidate_batch, event_batch, moved
from ranker.second.config import HEADS
from ranker.second.forward import Asked, Settle, Tail
from ranker.second.graphs import Capturer, GraphedScores
from ranker.second.network import Cache, SecondNet
from ranker.second.passes import Span, Views


class NetworkForward:
    """What `Forward` does, on the device of the network and of the buffers.

    Args:
        net: with its parameters on the device.
        capturer: None launches kernels one by one.
    """

    def __init__(self, net: SecondNet, capturer: Capturer | None) -> None:
        self._net, self._capturer = net, capturer
        self._kind, self._device = net.role.dtype, net.role.device
        self._graphed: tuple[Views, GraphedScores] | None = None

    @property
    def pages(self) -> int | None:
        """Pages whose events are encoded at once."""
        return 1

    def encode(self, views: Views, asked: Asked, span: Span, settle: Settle | None = None) -> None:
        """Fills keys and values of the span's events, which are all of one page."""
        buffers, tokens = views.buffers, views.buffers.shapes.page_tokens
        events = event_batch([asked.tokens[span.first : span.stop]], first=span.first, origin_s=[asked.origin_s])
        found, _ = self._net.encode(moved(events, self._device), self._cache(views, asked.slot, span.first))
        start = span.first // tokens * tokens
        for layer, (keys, values) in enumerate(zip(found.keys, found.values, strict=True)):
            buffers.keys[asked.slot, layer, span.first : span.stop] = keys[0].flatten(1)
            buffers.values[asked.slot, layer, span.first : span.stop] = values[0].flatten(1)
            if settle is not None and settle(layer):
                buffers.histories[asked.slot, :, layer, start : start + tokens] = buffers.kept[:, 0]

    def score(self, views: Views, tails: Sequence[Tail]) -> list[Tensor]:
        """Outcome logits [candidates, HEADS] of each, float32, on the host; new events are encoded first."""
        return [self._score(views, tail.asked, tail.span) for tail in tails]

    def encode_all(self, views: Views, asked: Asked) -> None:
        """Fills keys and values of the whole window."""
        if len(asked.tokens):
            self.encode(views, asked, Span(0, len(asked.tokens)))

    def _score(self, views: Views, asked: Asked, span: Span | None) -> Tensor:
        if span is not None:
            self.encode(views, asked, span)
        size, seen, found = views.buffers.shapes.micro_batch, len(asked.tokens), []
        for at in range(0, len(asked.candidates), size):
            some = asked.candidates.rows(slice(at, at + size))
            batch = candidate_batch([[(asked.request, some, seen, asked.origin_s)]])[0]
            found.append(self._scored(views, asked.slot, batch, seen).float().cpu())
        return torch.cat(found) if found else torch.empty(0, len(HEADS))

    def _scored(self, views: Views, slot: int, batch: CandidateBatch, seen: int) -> Tensor:
        if self._capturer is None:
            return self._net.score(moved(batch, self._device), self._cache(views, slot, seen))[0]
        if self._graphed is None or self._graphed[0] is not views:
            buffers, shapes = views.buffers, views.buffers.shapes
            history = buffers.keys[slot], buffers.values[slot]
            graphed = GraphedScores(self._net, *history, self._capturer, shapes.page_tokens, shapes.micro_batch)
            graphed.warm(batch)
            self._graphed = views, graphed
        return self._graphed[1].score(batch, seen)

    def _cache(self, views: Views, slot: int, events: int) -> Cache:
        sizes = self._net.sizes
        keys, values = (
            each[:, None, :events].view(sizes.layers, 1, events, sizes.heads, sizes.head_dim).to(self._kind).unbind(0)
            for each in (views.buffers.keys[slot], views.buffers.values[slot])
        )
        return Cache(keys, values)
