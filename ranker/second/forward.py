"""The network's blocks on buffers of a workspace: what `SecondNet` computes, without its allocations.

Rows come in whole granules, padded with zeros, and a new event lies in the row that its place in the page says. So the
shapes, and with them the last bits of a result, do not depend on who else is in the batch or on what was cached.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ranker.inference.sizes import ALIGNMENT, align_up
from ranker.inference.workspace import Workspace
from ranker.second.attention import turns
from ranker.second.batches import candidate_batch, event_batch
from ranker.second.config import HEADS, Sizes
from ranker.second.network import Block, SecondNet
from ranker.second.tokens import CandidateTokens, EventTokens, RequestToken

GRANULE = 8
"""Rows come in multiples of it."""

BUFFERS = 12
"""At most; each may lose an alignment."""


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
        """Rows of the buffers."""
        return whole_granules(max(self.page_tokens, self.micro_batch))

    @property
    def columns(self) -> int:
        """Entries of a history, whole pages."""
        return -(-self.window // self.page_tokens) * self.page_tokens


def workspace_bytes(sizes: Sizes, shapes: Shapes) -> int:
    """What `Buffers` ask for, at most."""
    rows, columns = shapes.rows, shapes.columns
    floats = rows * (10 * sizes.dim + 2 * sizes.feed_forward + 4 * sizes.heads)
    floats += sizes.heads * rows * columns + 2 * sizes.layers * columns * sizes.dim
    return align_up(4 * floats) + BUFFERS * 2 * ALIGNMENT


class Buffers:
    """Named parts of a batch's workspace, one set for all of its members in turn."""

    def __init__(self, workspace: Workspace, net: SecondNet, shapes: Shapes) -> None:
        sizes, rows = net.sizes, shapes.rows
        kind = net.role.dtype
        per_head = (sizes.heads, rows, sizes.head_dim)
        self.shapes, self._rows = shapes, rows
        self.keys = workspace.tensor("history keys", (sizes.layers, shapes.columns, sizes.dim))
        self.values = workspace.tensor("history values", (sizes.layers, shapes.columns, sizes.dim))
        self.scores = workspace.tensor("scores", (sizes.heads * rows * shapes.columns,))
        self.inner = workspace.tensor("inner", (rows, sizes.dim))
        self.normal = workspace.tensor("normalised", (rows, sizes.dim))
        self.cast = workspace.tensor("cast", (rows, sizes.dim), kind)
        self.joined = workspace.tensor("projected", (rows, 3 * sizes.dim), kind)
        self.turned = workspace.tensor("queries and keys", (2, rows, sizes.dim))
        self.read = workspace.tensor("read", per_head)
        self.grown = workspace.tensor("grown", (rows, sizes.feed_forward), kind)
        self.out = workspace.tensor("out", (rows, sizes.dim), kind)
        self.least = workspace.tensor("per head", (2, sizes.heads, rows, 1))


class Forward:
    """Encodes new events and scores candidates.

    Args:
        net: with parameters in one format, float32 or bfloat16; what is kept of a history is float32 in either case.
    """

    def __init__(self, net: SecondNet) -> None:
        self._net = net
        self._scale = net.sizes.head_dim**-0.5
        device = net.role.device
        self._later = torch.ones(0, dtype=torch.bool, device=device)

    def encode(self, buffers: Buffers, tokens: EventTokens, first: int, stop: int) -> None:
        """Fills keys and values of the window's events from `first` to `stop`, all of one page.

        Args:
            tokens: of the whole window.
        """
        block = slice(first // GRANULE * GRANULE, whole_granules(stop))
        rows, skipped, real = block.stop - block.start, first - block.start, stop - first
        placed = np.zeros(rows, tokens.dtype)
        placed[skipped : skipped + real] = tokens[first:stop]
        batch = event_batch([placed], block.start, [float(tokens["time_s"][0])])
        inner = buffers.inner[:rows].copy_(self._net.embed_events(batch)[0])
        cosines, sines = turns(torch.arange(block.start, block.stop), batch.seconds[0], self._net.rates)
        for layer, each in enumerate(self._net.layers):
            query, key, value = self._project(buffers, each, inner, cosines, sines)
            keys, values = buffers.keys[layer, : block.stop], buffers.values[layer, : block.stop]
            keys[first:], values[first:] = key[skipped:], value[skipped:]
            scores = self._scores(buffers, query, keys)
            scores[:, :, block.start :].masked_fill_(self._after(rows), -torch.inf)
            self._finish(buffers, each, inner, self._read(buffers, scores, values))

    def score(
        self, buffers: Buffers, length: int, request: RequestToken, candidates: CandidateTokens, origin_s: float
    ) -> Tensor:
        """Outcome logits [candidates, HEADS], float32, in memory of their own.

        Args:
            length: events of the window, whose keys and values are in the buffers.
            origin_s: time of the window's first event, or of the request where there is none.
        """
        size = buffers.shapes.micro_batch
        found = torch.empty(len(candidates), len(HEADS))
        for at in range(0, len(candidates), size):
            some = candidates.rows(slice(at, at + size))
            found[at : at + len(some)] = self._score(buffers, length, request, some, origin_s)
        return found

    def _score(
        self, buffers: Buffers, length: int, request: RequestToken, candidates: CandidateTokens, origin_s: float
    ) -> Tensor:
        real, rows = len(candidates), whole_granules(len(candidates))
        batch, _ = candidate_batch([[(request, candidates, length, origin_s)]])
        inner = buffers.inner[:rows].zero_()
        inner[:real] = self._net.embed_candidates(batch)[0]
        seconds = batch.seconds[0, :1].expand(rows)
        cosines, sines = turns(torch.full((rows,), length), seconds, self._net.rates)
        for layer, each in enumerate(self._net.layers):
            query, key, value = self._project(buffers, each, inner, cosines, sines)
            read = self._with_own(buffers, query, key, value, layer, length)
            self._finish(buffers, each, inner, read)
        logits: Tensor = self._net.judge(inner[:real].to(self._net.role.dtype), batch.light[0])
        return logits.float()

    def _project(
        self, buffers: Buffers, block: Block, inner: Tensor, cosines: Tensor, sines: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values, [rows, dim] float32."""
        rows, dim = inner.shape
        joined = buffers.joined[:rows]
        normal = self._normalised(buffers, inner, block.before_attention.weight)
        torch.mm(normal, block.query_key_value.weight.T, out=joined)
        for number in range(2):
            part = joined[:, number * dim : (number + 1) * dim].view(rows, block.heads, block.head_dim)
            _rotate(part, cosines[:, None], sines[:, None], buffers.turned[number, :rows].view_as(part))
        return buffers.turned[0, :rows], buffers.turned[1, :rows], joined[:, 2 * dim :]

    def _scores(self, buffers: Buffers, query: Tensor, keys: Tensor) -> Tensor:
        """[heads, rows, entries], scaled."""
        heads, rows, entries = self._net.sizes.heads, len(query), len(keys)
        scores = buffers.scores[: heads * rows * entries].view(heads, rows, entries)
        by_head = self._by_head(query), self._by_head(keys).transpose(1, 2)
        return torch.baddbmm(scores, *by_head, beta=0, alpha=self._scale, out=scores)

    def _read(self, buffers: Buffers, scores: Tensor, values: Tensor) -> Tensor:
        """What attention reads, [heads, rows, head_dim]; leaves maxima and sums in `least`."""
        rows = scores.shape[1]
        most, total = buffers.least[0, :, :rows], buffers.least[1, :, :rows]
        torch.amax(scores, dim=-1, keepdim=True, out=most)
        torch.sum(scores.sub_(most).exp_(), dim=-1, keepdim=True, out=total)
        read = torch.bmm(scores, self._by_head(values), out=buffers.read[:, :rows])
        return read.div_(total)

    def _with_own(self, buffers: Buffers, query: Tensor, key: Tensor, value: Tensor, layer: int, length: int) -> Tensor:
        """The exact softmax over the history and each candidate itself; see `attention.merge_self`."""
        own_value = self._by_head(value)
        if not length:
            return own_value
        scores = self._scores(buffers, query, buffers.keys[layer, :length])
        read = self._read(buffers, scores, buffers.values[layer, :length])
        most, total = (each[:, : len(query)] for each in buffers.least)
        own = (self._by_head(query) * self._by_head(key)).sum(dim=-1, keepdim=True) * self._scale
        share = own.sub_(most.add_(total.log_())).sigmoid_()
        return read.add_((own_value - read).mul_(share))

    def _finish(self, buffers: Buffers, block: Block, inner: Tensor, read: Tensor) -> None:
        """Adds what was read and what the feed-forward part makes of it."""
        rows = len(inner)
        out, grown, cast = buffers.out[:rows], buffers.grown[:rows], buffers.cast[:rows]
        cast.view(rows, block.heads, block.head_dim).copy_(read.transpose(0, 1))
        inner.add_(torch.mm(cast, block.out.weight.T, out=out))
        normal = self._normalised(buffers, inner, block.before_feed_forward.weight)
        torch.addmm(block.up.bias, normal, block.up.weight.T, out=grown)
        torch.ops.aten.gelu_(grown)
        inner.add_(torch.addmm(block.down.bias, grown, block.down.weight.T, out=out))

    def _normalised(self, buffers: Buffers, inner: Tensor, weight: Tensor) -> Tensor:
        """RMS norm, in the parameters' format."""
        normal = torch.mul(inner, inner, out=buffers.normal[: len(inner)])
        size = normal.mean(dim=-1, keepdim=True).add_(1e-6).rsqrt_()
        return torch.mul(torch.mul(inner, size, out=normal), weight, out=buffers.cast[: len(inner)])

    def _by_head(self, rows: Tensor) -> Tensor:
        """[rows, dim] as [heads, rows, head_dim], float32."""
        sizes = self._net.sizes
        return rows.reshape(len(rows), sizes.heads, sizes.head_dim).transpose(0, 1).float()

    def _after(self, rows: int) -> Tensor:
        """Which of a block's events come after which, [rows, rows]."""
        if len(self._later) < rows:
            self._later = torch.ones(rows, rows, dtype=torch.bool, device=self._later.device).triu(diagonal=1)
        return self._later[:rows, :rows]


def _rotate(heads: Tensor, cosines: Tensor, sines: Tensor, out: Tensor) -> None:
    """`attention.rotate` into a buffer."""
    half = heads.shape[-1] // 2
    first, second = heads[..., :half].float(), heads[..., half:].float()
    torch.mul(first, cosines, out=out[..., :half]).addcmul_(second, sines, value=-1)
    torch.mul(first, sines, out=out[..., half:]).addcmul_(second, cosines)
