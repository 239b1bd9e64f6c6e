"""The network's blocks on buffers of a workspace: what `SecondNet` computes, with a fraction of its calls.

A span of new events goes through one layer after the other as one matrix. Its pages are kept layer by layer, and read
as they are kept by the rows after them, so the same numbers are read whatever was cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ranker.second.buffers import Buffers, is_half, whole_granules
from ranker.second.config import HEADS
from ranker.second.embedding import Embedding
from ranker.second.folded import FoldedBlock, folded
from ranker.second.network import SecondNet
from ranker.second.passes import Group, Part, Pass, RowViews, Sight, Span, Views
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
        slot: of its history in the buffers.
    """

    tokens: EventTokens
    request: RequestToken
    candidates: CandidateTokens
    origin_s: float
    slot: int = 0


@dataclass(frozen=True)
class Tail:
    """What is left of a request when all but its newest events is encoded.

    Args:
        span: the newest events, all of one granule, encoded with the candidates; None where the whole window is in the
            buffers.
    """

    asked: Asked
    span: Span | None = None

    def micro_batch(self, at: int, size: int) -> tuple[Span, CandidateTokens]:
        """Candidates `at` to `at + size`, and what is encoded with them: what is new, with the first."""
        stop = len(self.asked.tokens)
        span = self.span if self.span is not None and not at else Span(stop, stop)
        return span, self.asked.candidates.rows(slice(at, at + size))


@dataclass(frozen=True)
class _Rows:
    """A part of a pass, and what its rows begin with.

    Args:
        candidates: none where only events are encoded.
        light: what `Embedding.light` made of them.
    """

    part: Part
    asked: Asked
    candidates: CandidateTokens
    light: Tensor


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
        rows = self._rows(asked, span, asked.candidates.rows(slice(0, 0)), 0)
        self._run(self._pass(views, [rows]), views.buffers, settle)

    def score(self, views: Views, tails: Sequence[Tail]) -> list[Tensor]:
        """Outcome logits [candidates, HEADS] of each, float32, in memory of their own; new events are encoded first.

        Args:
            tails: as many as the buffers have slots for at most, each in another slot.
        """
        found = [torch.empty(len(tail.asked.candidates), len(HEADS)) for tail in tails]
        size = views.buffers.shapes.micro_batch
        for at in range(0, max(map(len, found), default=0), size):
            rows, outs, start = [], [], 0
            for tail, logits in zip(tails, found, strict=True):
                if at < len(logits):
                    rows.append(self._rows(tail.asked, *tail.micro_batch(at, size), start))
                    outs.append(logits[at : at + size])
                    start = rows[-1].part.stop
            one = self._pass(views, rows)
            self._run(one, views.buffers, None)
            self._judge(one, rows, outs)
        return found

    def anew(self, views: Views, asked: Asked) -> Tensor:
        """Outcome logits [candidates, HEADS] with nothing kept of the history."""
        self.encode_all(views, asked)
        return self.score(views, [Tail(asked)])[0]

    def encode_all(self, views: Views, asked: Asked) -> None:
        """Fills keys and values of the whole window."""
        shapes = views.buffers.shapes
        step = shapes.pages * shapes.page_tokens
        for first in range(0, len(asked.tokens), step):
            self.encode(views, asked, Span(first, min(first + step, len(asked.tokens))))

    def _judge(self, one: Pass, rows: Sequence[_Rows], outs: Sequence[Tensor]) -> None:
        """What the light stage leads to, a correction, and what the request foretells."""
        known, normal = self._folded, self._normalised(one.views, one.views.normal)
        for each, out in zip(rows, outs, strict=True):
            first = each.part.start + each.part.span.rows
            judged, trust = normal[first + 1 : first + 1 + len(out)], known.trust[each.asked.request.typed]
            begun = self._embedding.begun(each.candidates, each.light, trust)
            torch.addmm(begun, judged, known.judge, alpha=trust.correction, out=out)
            out.add_(self._embedding.foretold(normal[first], each.candidates)[:, None], alpha=trust.told)

    # ---- rows

    def _rows(self, asked: Asked, span: Span, candidates: CandidateTokens, start: int) -> _Rows:
        places = whole_granules(1 + len(candidates)) if len(candidates) else 0
        light = self._embedding.light(candidates, asked.request.typed)
        return _Rows(Part(asked.slot, start, span, places), asked, candidates, light)

    def _pass(self, views: Views, rows: Sequence[_Rows]) -> Pass:
        parts = tuple(each.part for each in rows)
        groups = tuple(group for part in parts for group in self._sight.of(views, part))
        found = views.rows(parts[-1].stop)
        for each in rows:
            self._clear(views.buffers, each.part)
            self._embed(found.inner[each.part.start : each.part.stop], each)
        return Pass(parts, self._turns(rows), found, groups, only_kept=not any(part.places for part in parts))

    def _clear(self, buffers: Buffers, part: Part) -> None:
        """What is not there is hidden, and yet multiplied."""
        tokens, stop = buffers.shapes.page_tokens, part.span.stop
        end = max(-(-stop // tokens), 1) * tokens
        if stop < end:
            buffers.histories[part.slot, :, :, stop:end].zero_()

    def _embed(self, inner: Tensor, rows: _Rows) -> None:
        span, candidates = rows.part.span, rows.candidates
        if span.rows:
            placed = np.zeros(span.rows, rows.asked.tokens.dtype)
            placed[span.here] = rows.asked.tokens[span.first : span.stop]
            self._embedding.events(placed, inner[: span.rows])
        if len(candidates):
            end = span.rows + 1 + len(candidates)
            self._embedding.candidates(rows.asked.request, candidates, rows.light, inner[span.rows : end])
            inner[end:].zero_()

    def _turns(self, rows: Sequence[_Rows]) -> Tensor:
        """`attention.turns` as complex numbers, for the queries and keys of all heads."""
        turned = np.empty((rows[-1].part.stop, len(self._rates)), np.complex64)
        for each in rows:
            self._turn(each, turned[each.part.start : each.part.stop])
        return torch.from_numpy(turned)[:, None].expand(-1, 2 * self._sizes.heads, -1).contiguous()

    def _turn(self, rows: _Rows, out: NDArray[np.complex64]) -> None:
        """Of one request; all of its candidates have one."""
        asked, span = rows.asked, rows.part.span
        by_place, end = len(self._rates) - len(self._rates) // 2, span.rows
        seconds = np.full(end + 1, max(asked.request.time_s - asked.origin_s, 0.0))
        seconds[span.here] = np.maximum(asked.tokens["time_s"][span.first : span.stop] - asked.origin_s, 0.0)
        places = np.arange(span.block, span.block + end + 1, dtype=np.float64)
        places[end] = len(asked.tokens)
        angles = np.empty((end + 1, len(self._rates)))
        np.multiply(places[:, None], self._rates[:by_place], out=angles[:, :by_place])
        np.multiply(seconds[:, None], self._rates[by_place:], out=angles[:, by_place:])
        cosines, sines = np.cos(angles), np.sin(angles)
        out.real[:end], out.imag[:end] = cosines[:end], sines[:end]
        out.real[end:], out.imag[end:] = cosines[end], sines[end]

    # ---- layers

    def _run(self, one: Pass, buffers: Buffers, settle: Settle | None) -> None:
        last = self._sizes.layers - 1
        for layer, block in enumerate(self._folded.blocks):
            self._project(one, block)
            self._keep(buffers, one, layer)
            changed = settle is not None and settle(layer)
            read = not one.only_kept or layer < last
            for group in one.groups:
                if read:
                    self._attend(group, layer)
                if changed:
                    self._replace(buffers, one.parts[0], group, layer)
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
        """New events' entries of the histories."""
        dim = self._sizes.dim
        for part in one.parts:
            if part.span.rows:
                joined, here = one.views.joined[part.here], slice(part.span.first, part.span.stop)
                buffers.keys[part.slot, layer, here] = joined[:, dim : 2 * dim]
                buffers.values[part.slot, layer, here] = joined[:, 2 * dim :]

    def _replace(self, buffers: Buffers, part: Part, group: Group, layer: int) -> None:
        """A full page as it will be read from now on, once its own rows have seen it exactly."""
        if group.full is None:
            return
        tokens = buffers.shapes.page_tokens
        first = (part.span.full(tokens).start + group.full) * tokens
        buffers.histories[part.slot, :, layer, first : first + tokens] = buffers.kept[:, group.full]

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
