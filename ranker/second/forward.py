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

from ranker.inference.sizes import ALIGNMENT, align_up
from ranker.inference.workspace import Workspace
from ranker.second.config import HEADS, Sizes
from ranker.second.embedding import Embedding
from ranker.second.folded import FoldedBlock, folded
from ranker.second.network import SecondNet
from ranker.second.tokens import CandidateTokens, EventTokens, RequestToken

GRANULE = 8
"""Rows come in multiples of it."""

BUFFERS = 16
"""At most; each may lose an alignment."""

EPSILON = 1e-6
"""Of the network's norms."""


def whole_granules(rows: int) -> int:
    """The next multiple of the granule."""
    return -(-rows // GRANULE) * GRANULE


@dataclass(frozen=True)
class Shapes:
    """The largest that is computed at once.

    Args:
        window: events of a history.
        page_tokens: new events at once.
        micro_batch: candidates at once.
    """

    window: int
    page_tokens: int
    micro_batch: int

    @property
    def rows(self) -> int:
        """Rows of the buffers: a page's events, or candidates with the newest events."""
        return whole_granules(max(self.page_tokens, GRANULE + whole_granules(self.micro_batch)))

    @property
    def columns(self) -> int:
        """Entries of a history, whole pages."""
        return -(-self.window // self.page_tokens) * self.page_tokens


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


def workspace_bytes(sizes: Sizes, shapes: Shapes) -> int:
    """What `Buffers` ask for, at most."""
    rows, columns = shapes.rows, shapes.columns
    floats = rows * (9 * sizes.dim + 3 * sizes.dim + sizes.feed_forward + 1)
    floats += rows * sizes.heads * (2 * shapes.page_tokens + 4) + 2 * sizes.layers * columns * sizes.dim
    return align_up(4 * floats) + BUFFERS * 2 * ALIGNMENT


class Buffers:
    """Named parts of a batch's workspace, one set for all of its members in turn."""

    def __init__(self, workspace: Workspace, net: SecondNet, shapes: Shapes) -> None:
        sizes, rows = net.sizes, shapes.rows
        kind = net.role.dtype
        self.shapes = shapes
        self.keys = workspace.tensor("history keys", (sizes.layers, shapes.columns, sizes.dim))
        self.values = workspace.tensor("history values", (sizes.layers, shapes.columns, sizes.dim))
        self.inner = workspace.tensor("inner", (rows, sizes.dim))
        self.normal = workspace.tensor("normalised", (rows, sizes.dim))
        self.size = workspace.tensor("norm", (rows, 1))
        self.cast = workspace.tensor("cast", (rows, sizes.dim), kind)
        self.joined = workspace.tensor("projected", (rows, 3 * sizes.dim))
        self.half = workspace.tensor("projected in half", (rows, 3 * sizes.dim), kind) if _half(kind) else self.joined
        self.read = workspace.tensor("read", (rows, sizes.dim))
        self.own = workspace.tensor("own", (rows, sizes.dim))
        self.grown = workspace.tensor("grown", (rows, sizes.feed_forward), kind)
        self.out = workspace.tensor("out", (rows, sizes.dim), kind)
        self.near = workspace.tensor("scores in the page", (sizes.heads * rows * shapes.page_tokens,))
        self.shares = workspace.tensor("shares", (sizes.heads * rows * (shapes.page_tokens + 2),))


@dataclass(frozen=True)
class _Rows:
    """One pass: rows of new events, then rows of candidates; views that all layers share.

    Args:
        first, stop: events in it, of the window; equal where there are none.
        skipped: rows before the first event.
        events: rows for events, whole granules.
        page: entries before the page that all rows read exactly.
        turn: complex [rows, 2 · heads, head_dim / 2].
        hidden: [rows, page_tokens] 0, or −inf where a row does not see an entry of the page.
    """

    first: int
    stop: int
    skipped: int
    events: int
    page: int
    turn: Tensor
    hidden: Tensor
    inner: Tensor


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
            self._judge(buffers, rows, some, found[at : at + len(some)])
        return found

    def _judge(self, buffers: Buffers, rows: _Rows, candidates: CandidateTokens, out: Tensor) -> None:
        """The light score and a correction."""
        known = self._folded
        normal = self._normalised(buffers, rows.inner, buffers.normal)[rows.events : rows.events + len(candidates)]
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
        return _Rows(
            first, stop, first - block, events, page, self._turns(places, seconds), torch.from_numpy(hidden), inner
        )

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
            joined = self._project(buffers, block, rows)
            self._keep(buffers, rows, layer, joined)
            self._attend(buffers, rows, layer, joined)
            self._finish(buffers, block, rows.inner)

    def _project(self, buffers: Buffers, block: FoldedBlock, rows: _Rows) -> Tensor:
        """Rotated queries and keys, and values, [rows, 3, heads, head_dim] float32."""
        total, sizes = len(rows.inner), self._sizes
        joined, half = buffers.joined[:total], buffers.half[:total]
        torch.mm(self._normalised(buffers, rows.inner, buffers.cast), block.joined, out=half)
        if _half(self._kind):
            joined.copy_(half)
        pairs = joined[:, : 2 * sizes.dim].view(total, 2 * sizes.heads, sizes.head_dim // 2, 2)
        torch.view_as_complex(pairs).mul_(rows.turn)
        return joined.view(total, 3, sizes.heads, sizes.head_dim)

    def _keep(self, buffers: Buffers, rows: _Rows, layer: int, joined: Tensor) -> None:
        """New events' entries of the history."""
        if rows.stop == rows.first:
            return
        some = joined[rows.skipped : rows.skipped + rows.stop - rows.first]
        shape = (len(some), self._sizes.dim)
        buffers.keys[layer, rows.first : rows.stop] = some[:, 1].reshape(shape)
        buffers.values[layer, rows.first : rows.stop] = some[:, 2].reshape(shape)

    def _attend(self, buffers: Buffers, rows: _Rows, layer: int, joined: Tensor) -> None:
        """The exact softmax over the pages before, the page, and a candidate itself, into `read`."""
        total, heads, tokens = len(joined), self._sizes.heads, buffers.shapes.page_tokens
        query, value = joined[:, 0].transpose(0, 1), joined[:, 2].transpose(0, 1)
        near_keys, near_values = (
            self._by_head(each[layer, rows.page : rows.page + tokens]) for each in (buffers.keys, buffers.values)
        )
        near = buffers.near[: heads * total * tokens].view(heads, total, tokens)
        torch.baddbmm(rows.hidden.expand(heads, -1, -1), query, near_keys.transpose(1, 2), out=near)
        alone = torch.mul(joined[:, 0], joined[:, 1], out=buffers.own[:total].view(total, heads, -1))
        own = alone.sum(dim=-1).T[:, :, None]
        own[:, : rows.events] = -torch.inf
        read = buffers.read[:total].view(total, heads, -1).transpose(0, 1)
        if rows.page:
            far, far_total = self._far(buffers, rows.page, layer, query)
            shares = self._shares(buffers, (near, own, far_total))
            torch.mul(far, shares[:, :, -1:], out=read)
            read.addcmul_(value, shares[:, :, tokens : tokens + 1])
        else:
            shares = self._shares(buffers, (near, own))
            torch.mul(value, shares[:, :, tokens : tokens + 1], out=read)
        read.baddbmm_(shares[:, :, :tokens], near_values)

    def _far(self, buffers: Buffers, page: int, layer: int, query: Tensor) -> tuple[Tensor, Tensor]:
        """What is read of whole pages [heads, rows, head_dim], and the log of the sum of exponentials."""
        keys, values = (self._by_head(each[layer, :page])[None] for each in (buffers.keys, buffers.values))
        read, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query[None], keys, values, 0.0, False, scale=1.0
        )
        return read[0], total[0, :, :, None]

    def _shares(self, buffers: Buffers, scores: tuple[Tensor, ...]) -> Tensor:
        """A softmax over parts."""
        heads, total, _ = scores[0].shape
        columns = sum(part.shape[2] for part in scores)
        joined = buffers.shares[: heads * total * columns].view(heads, total, columns)
        torch.cat(scores, dim=2, out=joined)
        return torch.softmax(joined, dim=2, out=joined)

    def _finish(self, buffers: Buffers, block: FoldedBlock, inner: Tensor) -> None:
        """Adds what was read and what the feed-forward part makes of it."""
        total = len(inner)
        grown = buffers.grown[:total]
        self._add(buffers, inner, buffers.read[:total], block.out)
        torch.addmm(block.up_bias, self._normalised(buffers, inner, buffers.cast), block.up, out=grown)
        torch.ops.aten.gelu_(grown)
        self._add(buffers, inner, grown, block.down)
        inner.add_(block.down_bias)

    def _add(self, buffers: Buffers, inner: Tensor, read: Tensor, weight: Tensor) -> None:
        if not _half(self._kind):
            inner.addmm_(read, weight)
        else:
            inner.add_(torch.mm(read.to(self._kind), weight, out=buffers.out[: len(inner)]))

    def _normalised(self, buffers: Buffers, inner: Tensor, out: Tensor) -> Tensor:
        """RMS norm; its weights are in what follows."""
        size = torch.linalg.vector_norm(inner, 2, -1, True, out=buffers.size[: len(inner)])
        size.mul_(size).mul_(1.0 / inner.shape[1]).add_(EPSILON).rsqrt_()
        return torch.mul(inner, size, out=out[: len(inner)])

    def _by_head(self, rows: Tensor) -> Tensor:
        """[rows, dim] as [heads, rows, head_dim]."""
        return rows.view(len(rows), self._sizes.heads, self._sizes.head_dim).transpose(0, 1)


def _half(kind: torch.dtype) -> bool:
    return kind != torch.float32
