"""The network's blocks on buffers of a workspace: what `SecondNet` computes, with a fraction of its calls.

A span of new events goes through one layer after the other as one matrix. Its pages are kept layer by layer, and read
as they are kept by the rows after them, so the same numbers are read whatever was cached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ranker.second.buffers import Buffers, is_half, whole_granules
from ranker.second.config import HEADS
from ranker.second.embedding import Embedding
from ranker.second.folded import FoldedBlock, folded
from ranker.second.network import SecondNet
from ranker.second.passes import Group, Pass, RowViews, Sight, Span, Views
from ranker.second.tokens import CandidateTokens, EventTokens, RequestToken

EPSILON = 1e-6
"""Of the network's norms."""

Settle = Callable[[int], bool]
"""Keeps one layer of the pages that a span fills; whether they are read as others, which are in `Buffers.kept_…`."""


@dataclass(frozen=True)
class Asked:
    """What one request asks of its history.

    Args:
        tokens: of the whole window.
        origin_s: time of the window's first event, or of the request where there is none.
    """

    tokens: EventTokens
    request: RequestToken
    candidates: CandidateTokens
    origin_s: float


@dataclass(frozen=True)
class Judged:
    """Candidates of one micro-batch.

    Args:
        light: what `Embedding.light` made of them.
    """

    candidates: CandidateTokens
    light: Tensor

    def __len__(self) -> int:
        return len(self.candidates)


class Forward:
    """Encodes new events and scores candidates.

    Args:
        net: with parameters in one format, float32 or bfloat16; what is kept of a history is float32 in either case.
        page_tokens: entries of a page.
    """

    def __init__(self, net: SecondNet, page_tokens: int) -> None:
        self._sizes, self._kind = net.sizes, net.role.dtype
        self._folded = folded(net)
        self._embedding = Embedding(net, self._folded)
        self._rates = net.rates.numpy()
        self._sight = Sight(page_tokens)
        self._least = torch.full((1, 1), EPSILON * net.sizes.dim)

    @property
    def pages(self) -> int | None:
        """Pages whose events are encoded at once, None for as many as the buffers have rows for."""
        return None

    def encode(self, views: Views, asked: Asked, span: Span, settle: Settle | None = None) -> None:
        """Fills keys and values of the span's events.

        Args:
            span: within as many pages as the buffers have rows for.
            settle: None leaves the numbers as they are.
        """
        self._run(self._pass(views, asked, span, None), views.buffers, settle)

    def score(self, views: Views, asked: Asked, span: Span | None = None) -> Tensor:
        """Outcome logits [candidates, HEADS], float32, in memory of their own.

        Args:
            span: the newest events, all of one granule, encoded in the first pass of the candidates; None where the
                whole window is in the buffers.
        """
        size, stop = views.buffers.shapes.micro_batch, len(asked.tokens)
        found = torch.empty(len(asked.candidates), len(HEADS))
        for at in range(0, len(asked.candidates), size):
            some = asked.candidates.rows(slice(at, at + size))
            new = span if span is not None and not at else Span(stop, stop)
            judged = Judged(some, self._embedding.light(some))
            one = self._pass(views, asked, new, judged)
            self._run(one, views.buffers, None)
            self._judge(one, judged, found[at : at + len(some)])
        return found

    def anew(self, views: Views, asked: Asked) -> Tensor:
        """Outcome logits [candidates, HEADS] with nothing kept of the history."""
        shapes = views.buffers.shapes
        step = shapes.pages * shapes.page_tokens
        for first in range(0, len(asked.tokens), step):
            self.encode(views, asked, Span(first, min(first + step, len(asked.tokens))))
        return self.score(views, asked)

    def _judge(self, one: Pass, judged: Judged, out: Tensor) -> None:
        """What the light stage leads to, a correction, and what the request foretells."""
        known, first = self._folded, one.span.rows
        normal = self._normalised(one.views, one.views.normal)[first : first + 1 + len(judged)]
        torch.addmm(self._embedding.begun(judged.candidates, judged.light), normal[1:], known.judge, out=out)
        out.add_(self._embedding.foretold(normal[0], judged.candidates)[:, None], alpha=known.told_gain)

    # ---- rows

    def _pass(self, views: Views, asked: Asked, span: Span, judged: Judged | None) -> Pass:
        places = whole_granules(1 + len(judged)) if judged is not None else 0
        sight = self._sight
        groups = sight.of_candidates(views, span, places) if places else sight.of_events(views, span)
        self._clear(views.buffers, span)
        found = views.rows(span.rows + places)
        self._embed(found.inner, asked, span, judged)
        return Pass(span, self._turns(asked, span, places), found, groups, only_kept=not places)

    def _clear(self, buffers: Buffers, span: Span) -> None:
        """What is not there is hidden, and yet multiplied."""
        tokens = buffers.shapes.page_tokens
        end = max(-(-span.stop // tokens), 1) * tokens
        if span.stop < end:
            buffers.histories[:, :, span.stop : end].zero_()

    def _embed(self, inner: Tensor, asked: Asked, span: Span, judged: Judged | None) -> None:
        if span.rows:
            placed = np.zeros(span.rows, asked.tokens.dtype)
            placed[span.here] = asked.tokens[span.first : span.stop]
            self._embedding.events(placed, inner[: span.rows])
        if judged is not None:
            end = span.rows + 1 + len(judged)
            self._embedding.candidates(asked.request, judged.candidates, judged.light, inner[span.rows : end])
            inner[end:].zero_()

    def _turns(self, asked: Asked, span: Span, candidates: int) -> Tensor:
        """`attention.turns` as complex numbers, for the queries and keys of all heads; one for all candidates."""
        by_place, end = len(self._rates) - len(self._rates) // 2, span.rows
        seconds = np.full(end + 1, max(asked.request.time_s - asked.origin_s, 0.0))
        seconds[span.here] = np.maximum(asked.tokens["time_s"][span.first : span.stop] - asked.origin_s, 0.0)
        places = np.arange(span.block, span.block + end + 1, dtype=np.float64)
        places[end] = len(asked.tokens)
        angles = np.empty((end + 1, len(self._rates)))
        np.multiply(places[:, None], self._rates[:by_place], out=angles[:, :by_place])
        np.multiply(seconds[:, None], self._rates[by_place:], out=angles[:, by_place:])
        turned = np.empty((end + candidates, len(self._rates)), np.complex64)
        cosines, sines = np.cos(angles), np.sin(angles)
        turned.real[:end], turned.imag[:end] = cosines[:end], sines[:end]
        turned.real[end:], turned.imag[end:] = cosines[end], sines[end]
        return torch.from_numpy(turned)[:, None].expand(-1, 2 * self._sizes.heads, -1).contiguous()

    # ---- layers

    def _run(self, one: Pass, buffers: Buffers, settle: Settle | None) -> None:
        last = self._sizes.layers - 1
        for layer, block in enumerate(self._folded.blocks):
            self._project(one, block)
            if one.span.rows:
                self._keep(buffers, one, layer)
            changed = settle is not None and settle(layer)
            read = not one.only_kept or layer < last
            for group in one.groups:
                if read:
                    self._attend(group, layer)
                if changed:
                    self._replace(buffers, one.span, group, layer)
            if read:
                self._finish(one.views, block)

    def _project(self, one: Pass, block: FoldedBlock) -> None:
        """Rotated queries and keys, and values."""
        views = one.views
        torch.mm(self._normalised(views, views.cast), block.joined, out=views.half)
        if is_half(self._kind):
            views.joined.copy_(views.half)
        views.pairs.mul_(one.turn)

    def _keep(self, buffers: Buffers, one: Pass, layer: int) -> None:
        """New events' entries of the history."""
        dim, span, joined = self._sizes.dim, one.span, one.views.joined[one.span.here]
        buffers.keys[layer, span.first : span.stop] = joined[:, dim : 2 * dim]
        buffers.values[layer, span.first : span.stop] = joined[:, 2 * dim :]

    def _replace(self, buffers: Buffers, span: Span, group: Group, layer: int) -> None:
        """A full page as it will be read from now on, once its own rows have seen it exactly."""
        if group.full is None:
            return
        tokens = buffers.shapes.page_tokens
        first = (span.full(tokens).start + group.full) * tokens
        buffers.histories[:, layer, first : first + tokens] = buffers.kept[:, group.full]

    def _attend(self, group: Group, layer: int) -> None:
        """The exact softmax over the pages before, the page, and a candidate itself."""
        reading = group.reading
        torch.bmm(reading.query, reading.keys[layer], out=reading.seen)
        reading.near.add_(group.hidden)
        reading.aside.fill_(-torch.inf)
        if reading.has_own:
            torch.mul(reading.own_query, reading.own_key, out=reading.product)
            torch.sum(reading.product, dim=-1, out=reading.own_out)
        torch.softmax(reading.scores, dim=2, out=reading.scores)
        torch.bmm(reading.seen, reading.values[layer], out=reading.read)
        if reading.has_own:
            reading.own_read.addcmul_(reading.own_value, reading.own_share)

    def _finish(self, views: RowViews, block: FoldedBlock) -> None:
        """Adds what was read and what the feed-forward part makes of it."""
        self._add(views, views.read, block.out)
        torch.addmm(block.up_bias, self._normalised(views, views.cast), block.up, out=views.grown)
        torch.ops.aten.gelu_(views.grown)
        self._add(views, views.grown, block.down)
        views.inner.add_(block.down_bias)

    def _add(self, views: RowViews, read: Tensor, weight: Tensor) -> None:
        if not is_half(self._kind):
            views.inner.addmm_(read, weight)
        else:
            views.inner.add_(torch.mm(read.to(self._kind), weight, out=views.out))

    def _normalised(self, views: RowViews, out: Tensor) -> Tensor:
        """RMS norm, but for the root of the width and the norm's weights: they are in what follows."""
        size = torch.linalg.vector_norm(views.inner, 2, -1, True, out=views.size)
        torch.addcmul(self._least, size, size, out=size).rsqrt_()
        return torch.mul(views.inner, size, out=out)
