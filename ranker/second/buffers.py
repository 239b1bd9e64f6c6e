"""Buffers of one batch's passes, cut from its workspace."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from ranker.inference.sizes import align_up
from ranker.inference.workspace import Workspace
from ranker.second.config import Sizes
from ranker.second.network import SecondNet

GRANULE = 4
"""Rows come in multiples of it."""

ASIDE = 16
"""Scores beside those of the pages: a candidate's own, and nothing up to a whole vector, which is faster."""

SPAN = 256
"""New events at once, at most: more cost no less each."""

TOGETHER = 4
"""Requests that are scored at once, at most."""


def whole_granules(rows: int) -> int:
    """The next multiple of the granule."""
    return -(-rows // GRANULE) * GRANULE


@dataclass(frozen=True)
class Shapes:
    """The largest that is computed at once.

    Args:
        window: events of a history.
        page_tokens: of a page; whatever is read exactly is one.
        micro_batch: candidates of a request at once.
        together: requests that are scored at once.
    """

    window: int
    page_tokens: int
    micro_batch: int
    together: int = 1

    @property
    def pages(self) -> int:
        """Pages whose events are encoded at once, at most."""
        return max(min(SPAN, self.window) // self.page_tokens, 1)

    @property
    def scored(self) -> int:
        """Rows of a request that are scored at once: candidates and the request itself, with the newest events."""
        return GRANULE + whole_granules(1 + self.micro_batch)

    @property
    def rows(self) -> int:
        """Rows of the buffers."""
        return whole_granules(max(self.pages * self.page_tokens, self.together * self.scored))

    @property
    def columns(self) -> int:
        """Entries of a history, whole pages, at least one."""
        return max(-(-self.window // self.page_tokens), 1) * self.page_tokens


def workspace_bytes(sizes: Sizes, shapes: Shapes) -> int:
    """What `Buffers` ask for, whatever the format of the weights."""
    return sum(_bytes_of(run, torch.float32) for run in _runs(sizes, shapes))


def memory_of(workspace: Workspace, sizes: Sizes, shapes: Shapes) -> Tensor:
    """What all buffers are cut from: the same bytes in every batch of a workspace, asked for in one call."""
    return workspace.tensor("second", (workspace_bytes(sizes, shapes),), torch.uint8)


class Buffers:
    """Named parts of a batch's workspace: a slot for each history that is read at once, and one set of the rest."""

    def __init__(self, workspace: Workspace, net: SecondNet, shapes: Shapes) -> None:
        sizes, kind = net.sizes, net.role.dtype
        self.shapes = shapes
        self.memory = memory_of(workspace, sizes, shapes)
        kinds = (torch.float32, torch.float32, torch.float32, kind)
        runs, end = [], 0
        for parts, each in zip(_runs(sizes, shapes), kinds, strict=True):
            nbytes = _bytes_of(parts, torch.float32)
            runs.append(_cut(self.memory[end : end + nbytes].view(each), parts))
            end += nbytes
        (self.histories,), (self.kept,), rows, cast = runs
        self.keys, self.values = self.histories.unbind(1)
        self.kept_keys, self.kept_values = self.kept.unbind(0)
        self.inner, self.normal, self.size, self.joined, self.read, self.own, self.scores = rows
        self.cast, self.grown, self.out = cast[:3]
        self.half = cast[3] if is_half(kind) else self.joined


def _runs(sizes: Sizes, shapes: Shapes) -> tuple[list[tuple[int, ...]], ...]:
    """Shapes of the buffers: histories, pages as they are kept, rows, and rows in the weights' format."""
    history = (shapes.together, 2, sizes.layers, shapes.columns, sizes.dim)
    kept = (2, shapes.pages, shapes.page_tokens, sizes.dim)
    return [history], [kept], _row_parts(sizes, shapes), _cast_parts(sizes, shapes)


def _bytes_of(parts: list[tuple[int, ...]], kind: torch.dtype) -> int:
    return align_up(sum(_sizes_of(parts)) * kind.itemsize)


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
