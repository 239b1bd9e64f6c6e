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

ASIDE = 16
"""Scores beside those of the pages: a candidate's own, and nothing up to a whole vector, which is faster."""

SPAN = 256
"""New events at once, at most: more cost no less each."""

BUFFERS = 4
"""At most; each may lose an alignment."""


def whole_granules(rows: int) -> int:
    """The next multiple of the granule."""
    return -(-rows // GRANULE) * GRANULE


@dataclass(frozen=True)
class Shapes:
    """The largest that is computed at once.

    Args:
        window: events of a history.
        page_tokens: of a page; whatever is read exactly is one.
        micro_batch: candidates at once.
    """

    window: int
    page_tokens: int
    micro_batch: int

    @property
    def pages(self) -> int:
        """Pages whose events are encoded at once, at most."""
        return max(min(SPAN, self.window) // self.page_tokens, 1)

    @property
    def scored(self) -> int:
        """Rows that are scored at once: candidates and their request, with the newest events."""
        return GRANULE + whole_granules(1 + self.micro_batch)

    @property
    def rows(self) -> int:
        """Rows of the buffers."""
        return whole_granules(max(self.pages * self.page_tokens, self.scored))

    @property
    def columns(self) -> int:
        """Entries of a history, whole pages, at least one."""
        return max(-(-self.window // self.page_tokens), 1) * self.page_tokens


def workspace_bytes(sizes: Sizes, shapes: Shapes) -> int:
    """What `Buffers` ask for, at most."""
    rows, layers = (sum(_sizes_of(parts)) for parts in (_row_parts(sizes, shapes), _cast_parts(sizes, shapes)))
    history = 2 * sizes.layers * shapes.columns * sizes.dim
    kept = 2 * shapes.pages * shapes.page_tokens * sizes.dim
    return align_up(4 * (rows + layers + history + kept)) + BUFFERS * 2 * ALIGNMENT


class Buffers:
    """Named parts of a batch's workspace, one set for all of its members in turn.

    Few large views of the workspace are cut here: asking for each costs more than a layer's product.
    """

    def __init__(self, workspace: Workspace, net: SecondNet, shapes: Shapes) -> None:
        sizes = net.sizes
        self.shapes = shapes
        history, kept, rows, cast = runs(workspace, sizes, shapes, net.role.dtype)
        self.histories, self.kept = history, kept
        self.keys, self.values = history.unbind(0)
        self.kept_keys, self.kept_values = kept.unbind(0)
        self.inner, self.normal, self.size, self.joined, self.read, self.own, self.scores = _cut(
            rows, _row_parts(sizes, shapes)
        )
        parts = _cut(cast, _cast_parts(sizes, shapes))
        self.cast, self.grown, self.out = parts[:3]
        self.half = parts[3] if is_half(net.role.dtype) else self.joined


def runs(
    workspace: Workspace, sizes: Sizes, shapes: Shapes, kind: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What all buffers are cut from; the same memory in every batch of a workspace."""
    rows, cast = (sum(_sizes_of(parts)) for parts in (_row_parts(sizes, shapes), _cast_parts(sizes, shapes)))
    return (
        workspace.tensor("histories", (2, sizes.layers, shapes.columns, sizes.dim)),
        workspace.tensor("kept pages", (2, shapes.pages, shapes.page_tokens, sizes.dim)),
        workspace.tensor("rows", (rows,), torch.float32),
        workspace.tensor("cast rows", (cast,), kind),
    )


def _row_parts(sizes: Sizes, shapes: Shapes) -> list[tuple[int, ...]]:
    rows, dim, columns = shapes.rows, sizes.dim, shapes.columns + ASIDE
    scores = sizes.heads * max(shapes.scored, shapes.page_tokens) * columns
    return [(rows, dim), (rows, dim), (rows, 1), (rows, 3 * dim), (rows, dim), (rows, dim), (scores,)]


def _cast_parts(sizes: Sizes, shapes: Shapes) -> list[tuple[int, ...]]:
    rows, dim = shapes.rows, sizes.dim
    return [(rows, dim), (rows, sizes.feed_forward), (rows, dim), (rows, 3 * dim)]


def _sizes_of(parts: list[tuple[int, ...]]) -> list[int]:
    """Elements of each, aligned in any format."""
    return [align_up(prod(part)) for part in parts]


def _cut(run: Tensor, parts: list[tuple[int, ...]]) -> list[Tensor]:
    elements = _sizes_of(parts)
    ends = accumulate(elements)
    return [run[end - size :][: prod(part)].view(part) for end, size, part in zip(ends, elements, parts, strict=True)]


def is_half(kind: torch.dtype) -> bool:
    """Whether weights are in another format than what is added up."""
    return kind != torch.float32
