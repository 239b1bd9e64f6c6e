"""The network's blocks on buffers of a workspace: what `SecondNet` computes, with a fraction of its calls.

Rows come in whole granules, padded with zeros, and a new event lies in the row that its place in the page says. Every
row reads the pages before its own, merged by the log of their sum of exponentials with what is in its page and, for a
candidate, with itself. So the shapes of the sums, and with them the last bits of a result, do not depend on who else is
in the batch or on what was cached.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ranker.second.buffers import GRANULE, Buffers, is_half, whole_granules
from ranker.second.config import HEADS, Sizes
from ranker.second.embedding import Embedding
from ranker.second.folded import FoldedBlock, folded
from ranker.second.network import SecondNet
from ranker.second.tokens import CandidateTokens, EventTokens, RequestToken

EPSILON = 1e-6
"""Of the network's norms."""


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
class _Rows:
    """One pass: rows of new events, then rows of candidates.

    Args:
        first, stop: events in it, of the window; equal where there are none.
        skipped: rows before the first event.
        events: rows for events, whole granules.
        page: entries before the page that all rows read exactly.
        turn: complex [rows, 2 · heads, head_dim / 2].
        hidden: [heads, rows, page_tokens] 0, or −inf where a row does not see an entry of the page.
        views: that all layers share.
    """

    first: int
    stop: int
    skipped: int
    events: int
    page: int
    turn: Tensor
    hidden: Tensor
    views: _Views


class _Views:
    """Parts of the buffers as the layers of one pass use them.

    Args:
        page: entries before the page.
    """

    def __init__(self, buffers: Buffers, sizes: Sizes, total: int, page: int) -> None:
        heads, width, tokens = sizes.heads, sizes.head_dim, buffers.shapes.page_tokens
        self.inner, self.size, self.normal = buffers.inner[:total], buffers.size[:total], buffers.normal[:total]
        self.cast, self.grown, self.out = buffers.cast[:total], buffers.grown[:total], buffers.out[:total]
        self.joined, self.half, self.read = buffers.joined[:total], buffers.half[:total], buffers.read[:total]
        parts = self.joined.view(total, 3, heads, width)
        self.pairs = torch.view_as_complex(self.joined[:, : 2 * sizes.dim].view(total, 2 * heads, width // 2, 2))
        self.queries, self.keys = parts[:, 0], parts[:, 1]
        self.own = buffers.own[:total].view(total, heads, width)
        self.query, self.value = self.queries.transpose(0, 1), parts[:, 2].transpose(0, 1)
        self.read_by_head = self.read.view(total, heads, width).transpose(0, 1)
        self.near = buffers.near[: heads * total * tokens].view(heads, total, tokens)
        columns = tokens + 1 + (page > 0)
        self.shares = buffers.shares[: heads * total * columns].view(heads, total, columns)
        self.near_share, self.own_share = self.shares[:, :, :tokens], self.shares[:, :, tokens : tokens + 1]
        self.far_share = self.shares[:, :, tokens + 1 :]
        keys, values = (
            each.view(sizes.layers, -1, heads, width).transpose(1, 2) for each in (buffers.keys, buffers.values)
        )
        self.near_keys = keys[:, :, page : page + tokens].transpose(2, 3).unbind(0)
        self.near_values = values[:, :, page : page + tokens].unbind(0)
        self.far_keys, self.far_values = keys[:, None, :, :page].unbind(0), values[:, None, :, :page].unbind(0)


class Forward:
    """Encodes new events and scores candidates.

    Args:
        net: with parameters in one format, float32 or bfloat16; what is kept of a history is float32 in either case.
    """

    def __init__(self, net: SecondNet) -> None:
        self._sizes, self._kind = net.sizes, net.role.dtype
        self._folded = folded(net)
        self._embedding = Embedding(net, self._folded)
        self._rates = net.rates.numpy()

    def encode(self, buffers: Buffers, asked: Asked, first: int, stop: int) -> None:
        """Fills keys and values of the window's events from `first` to `stop`, all of one page."""
        self._pass(buffers, self._rows(buffers, asked, first, stop, asked.candidates.rows(slice(0, 0))))

    def score(self, buffers: Buffers, asked: Asked) -> Tensor:
        """Outcome logits [candidates, HEADS], float32, in memory of their own; the whole window is in the buffers."""
        length = len(asked.tokens)
        return self._scored(buffers, asked, length, length)

    def encode_and_score(self, buffers: Buffers, asked: Asked, first: int) -> Tensor:
        """Both, with the newest events, all of one granule, in the first pass of the candidates."""
        return self._scored(buffers, asked, first, len(asked.tokens))

    def _scored(self, buffers: Buffers, asked: Asked, first: int, stop: int) -> Tensor:
        size = buffers.shapes.micro_batch
        found = torch.empty(len(asked.candidates), len(HEADS))
        for at in range(0, len(asked.candidates), size):
            some = asked.candidates.rows(slice(at, at + size))
            rows = self._rows(buffers, asked, stop if at else first, stop, some)
            self._pass(buffers, rows)
            self._judge(rows, some, found[at : at + len(some)])
        return found

    def _judge(self, rows: _Rows, candidates: CandidateTokens, out: Tensor) -> None:
        """The light score and a correction."""
        known = self._folded
        normal = _normalised(rows.views, rows.views.normal)[rows.events : rows.events + len(candidates)]
        torch.addmm(known.judge_bias, normal, known.judge, out=out)
        out.addcmul_(torch.from_numpy(candidates.light)[:, None], known.light_gain)

    # ---- rows

    def _rows(self, buffers: Buffers, asked: Asked, first: int, stop: int, candidates: CandidateTokens) -> _Rows:
        page_tokens, real = buffers.shapes.page_tokens, stop - first
        block = first // GRANULE * GRANULE
        events = whole_granules(stop) - block if real else 0
        page = max(block if real else stop - 1, 0) // page_tokens * page_tokens
        total = events + whole_granules(len(candidates))
        inner = buffers.inner[:total].zero_()
        # what is not there is hidden, and yet multiplied
        for each in (buffers.keys, buffers.values):
            each[:, stop : page + page_tokens].zero_()
        seconds = np.full(total, max(asked.request.time_s - asked.origin_s, 0.0))
        places = np.full(total, float(len(asked.tokens)))
        hidden = np.zeros((total, page_tokens), np.float32)
        hidden[:, stop - page :] = -np.inf
        if real:
            here = slice(first - block, stop - block)
            placed = np.zeros(events, asked.tokens.dtype)
            placed[here] = asked.tokens[first:stop]
            self._embedding.events(placed, inner[:events])
            seconds[here] = np.maximum(asked.tokens["time_s"][first:stop] - asked.origin_s, 0.0)
            places[:events] = np.arange(block, block + events)
            hidden[:events] = np.where(np.arange(page_tokens) > places[:events, None] - page, -np.inf, 0.0)
        if len(candidates):
            self._embedding.candidates(asked.request, candidates, inner[events : events + len(candidates)])
        shown = torch.from_numpy(hidden).expand(self._sizes.heads, -1, -1)
        views = _Views(buffers, self._sizes, total, page)
        return _Rows(first, stop, first - block, events, page, self._turns(places, seconds), shown, views)

    def _turns(self, places: NDArray[np.float64], seconds: NDArray[np.float64]) -> Tensor:
        """`attention.turns` as complex numbers, for the queries and keys of all heads."""
        by_place = len(self._rates) - len(self._rates) // 2
        angles = np.empty((len(places), len(self._rates)))
        np.multiply(places[:, None], self._rates[:by_place], out=angles[:, :by_place])
        np.multiply(seconds[:, None], self._rates[by_place:], out=angles[:, by_place:])
        turned = np.empty(angles.shape, np.complex64)
        turned.real, turned.imag = np.cos(angles), np.sin(angles)
        return torch.from_numpy(turned)[:, None].expand(-1, 2 * self._sizes.heads, -1).contiguous()

    # ---- layers

    def _pass(self, buffers: Buffers, rows: _Rows) -> None:
        for layer, block in enumerate(self._folded.blocks):
            self._project(rows, block)
            if rows.stop > rows.first:
                self._keep(buffers, rows, layer)
            self._attend(rows, layer)
            self._finish(rows.views, block)

    def _project(self, rows: _Rows, block: FoldedBlock) -> None:
        """Rotated queries and keys, and values."""
        views = rows.views
        torch.mm(_normalised(views, views.cast), block.joined, out=views.half)
        if is_half(self._kind):
            views.joined.copy_(views.half)
        views.pairs.mul_(rows.turn)

    def _keep(self, buffers: Buffers, rows: _Rows, layer: int) -> None:
        """New events' entries of the history."""
        dim, end = self._sizes.dim, rows.skipped + rows.stop - rows.first
        buffers.keys[layer, rows.first : rows.stop] = rows.views.joined[rows.skipped : end, dim : 2 * dim]
        buffers.values[layer, rows.first : rows.stop] = rows.views.joined[rows.skipped : end, 2 * dim :]

    def _attend(self, rows: _Rows, layer: int) -> None:
        """The exact softmax over the pages before, the page, and a candidate itself, into `read`."""
        views = rows.views
        torch.baddbmm(rows.hidden, views.query, views.near_keys[layer], out=views.near)
        own = torch.mul(views.queries, views.keys, out=views.own).sum(dim=-1).T[:, :, None]
        own[:, : rows.events] = -torch.inf
        if rows.page:
            far, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                views.query[None], views.far_keys[layer], views.far_values[layer], 0.0, False, scale=1.0
            )
            torch.cat((views.near, own, total[0, :, :, None]), dim=2, out=views.shares)
            torch.softmax(views.shares, dim=2, out=views.shares)
            torch.mul(far[0], views.far_share, out=views.read_by_head)
            views.read_by_head.addcmul_(views.value, views.own_share)
        else:
            torch.cat((views.near, own), dim=2, out=views.shares)
            torch.softmax(views.shares, dim=2, out=views.shares)
            torch.mul(views.value, views.own_share, out=views.read_by_head)
        views.read_by_head.baddbmm_(views.near_share, views.near_values[layer])

    def _finish(self, views: _Views, block: FoldedBlock) -> None:
        """Adds what was read and what the feed-forward part makes of it."""
        self._add(views, views.read, block.out)
        torch.addmm(block.up_bias, _normalised(views, views.cast), block.up, out=views.grown)
        torch.ops.aten.gelu_(views.grown)
        self._add(views, views.grown, block.down)
        views.inner.add_(block.down_bias)

    def _add(self, views: _Views, read: Tensor, weight: Tensor) -> None:
        if not is_half(self._kind):
            views.inner.addmm_(read, weight)
        else:
            views.inner.add_(torch.mm(read.to(self._kind), weight, out=views.out))


def _normalised(views: _Views, out: Tensor) -> Tensor:
    """RMS norm; its weights are in what follows."""
    size = torch.linalg.vector_norm(views.inner, 2, -1, True, out=views.size)
    size.mul_(size).mul_(1.0 / views.inner.shape[1]).add_(EPSILON).rsqrt_()
    return torch.mul(views.inner, size, out=out)
