"""Buffers of one batch's passes, cut from its workspace."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from ranker.inference.sizes import ALIGNMENT, align_up
from ranker.inference.workspace import Workspace
from ranker.second.config import Sizes
from ranker.second.network import SecondNet

GRANULE = 4
"""Rows come in multiples of it."""

BUFFERS = 3
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
        """Rows of the buffers: a page's events, or candidates with the newest events."""
        return whole_granules(max(self.page_tokens, GRANULE + whole_granules(self.micro_batch)))

    @property
    def columns(self) -> int:
        """Entries of a history, whole pages."""
        return -(-self.window // self.page_tokens) * self.page_tokens


def workspace_bytes(sizes: Sizes, shapes: Shapes) -> int:
    """What `Buffers` ask for, at most."""
    rows, layers = (sum(_sizes_of(parts)) for parts in (_row_parts(sizes, shapes), _cast_parts(sizes, shapes)))
    history = 2 * sizes.layers * shapes.columns * sizes.dim
    return align_up(4 * (rows + layers + history)) + BUFFERS * 2 * ALIGNMENT


class Buffers:
    """Named parts of a batch's workspace, one set for all of its members in turn.

    Few large views of the workspace are cut here: asking for each costs more than a layer's product.
    """

    def __init__(self, workspace: Workspace, net: SecondNet, shapes: Shapes) -> None:
        sizes = net.sizes
        self.shapes = shapes
        history = workspace.tensor("histories", (2, sizes.layers, shapes.columns, sizes.dim))
        self.keys, self.values = history.unbind(0)
        rows = _cut(workspace, "rows", _row_parts(sizes, shapes), torch.float32)
        self.inner, self.normal, self.size, self.joined, self.read, self.own, self.near, self.shares = rows
        cast = _cut(workspace, "cast rows", _cast_parts(sizes, shapes), net.role.dtype)
        self.cast, self.grown, self.out = cast[:3]
        self.half = cast[3] if is_half(net.role.dtype) else self.joined


def _row_parts(sizes: Sizes, shapes: Shapes) -> list[tuple[int, ...]]:
    rows, dim = shapes.rows, sizes.dim
    near = sizes.heads * rows * shapes.page_tokens
    shared = near + 2 * sizes.heads * rows
    return [(rows, dim), (rows, dim), (rows, 1), (rows, 3 * dim), (rows, dim), (rows, dim), (near,), (shared,)]


def _cast_parts(sizes: Sizes, shapes: Shapes) -> list[tuple[int, ...]]:
    rows, dim = shapes.rows, sizes.dim
    return [(rows, dim), (rows, sizes.feed_forward), (rows, dim), (rows, 3 * dim)]


def _sizes_of(parts: list[tuple[int, ...]]) -> list[int]:
    """Elements of each, aligned in any format."""
    return [align_up(prod(part)) for part in parts]


def _cut(workspace: Workspace, name: str, parts: list[tuple[int, ...]], kind: torch.dtype) -> list[Tensor]:
    elements = _sizes_of(parts)
    run = workspace.tensor(name, (sum(elements),), kind)
    ends = accumulate(elements)
    return [run[end - size :][: prod(part)].view(part) for end, size, part in zip(ends, elements, parts, strict=True)]


def is_half(kind: torch.dtype) -> bool:
    """Whether weights are in another format than what is added up."""
    return kind != torch.float32
