"""What one pass through the layers computes: of each request rows of new events, then of candidates, and what is read.

Rows come in whole granules, padded with zeros, and a new event lies in the row that its place in the page says. Rows
that read the same pages are read together: all that came before, the page that they read exactly, and, for a candidate,
itself. So the shapes of the sums, and with them the last bits of a result, do not depend on who else is in the batch or
on what was cached.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ranker.second.buffers import ASIDE, GRANULE, Buffers, whole_granules
from ranker.second.config import Sizes

KEPT_VIEWS = 1024
"""Of readings; a request makes none where the same were made before."""


@dataclass(frozen=True)
class Span:
    """Events of a window to be encoded at once; none where both are the same.

    Args:
        first, stop: places in the window.
    """

    first: int
    stop: int

    @property
    def block(self) -> int:
        """The place of the first row."""
        return self.first // GRANULE * GRANULE

    @property
    def rows(self) -> int:
        """Rows for its events."""
        return whole_granules(self.stop) - self.block if self.stop > self.first else 0

    def full(self, page_tokens: int) -> range:
        """Numbers of the pages that it fills."""
        return range(self.first // page_tokens, self.stop // page_tokens)

    @property
    def here(self) -> slice:
        """The rows that hold events."""
        return slice(self.first - self.block, self.stop - self.block)


@dataclass(frozen=True)
class Part:
    """One request's rows of a pass: of a span's events, then of candidates.

    Args:
        slot: of its history in the buffers.
        start: its first row.
        places: rows of candidates, the request's own among them.
    """

    slot: int
    start: int
    span: Span
    places: int

    @property
    def stop(self) -> int:
        """The row after its last."""
        return self.start + self.span.rows + self.places

    @property
    def here(self) -> slice:
        """The rows that hold events."""
        return slice(self.start + self.span.here.start, self.start + self.span.here.stop)


class RowViews:
    """Parts of the buffers for so many rows, that all layers share."""

    def __init__(self, buffers: Buffers, sizes: Sizes, total: int) -> None:
        heads, width = sizes.heads, sizes.head_dim
        self.inner, self.size, self.normal = buffers.inner[:total], buffers.size[:total], buffers.normal[:total]
        self.cast, self.grown, self.out = buffers.cast[:total], buffers.grown[:total], buffers.out[:total]
        self.joined, self.half, self.read = buffers.joined[:total], buffers.half[:total], buffers.read[:total]
        self.pairs = torch.view_as_complex(self.joined[:, : 2 * sizes.dim].view(total, 2 * heads, width // 2, 2))


class Reading:
    """Rows that read the same pages, and where their scores lie.

    Args:
        slot: of the history.
        start, stop: of the rows.
        alone: of these, how many have no term of their own: events are in the page that they read.
        page: entries before the page that they read exactly.
    """

    def __init__(
        self, buffers: Buffers, sizes: Sizes, slot: int, start: int, stop: int, alone: int, page: int
    ) -> None:  # fmt: skip
        heads, width, tokens = sizes.heads, sizes.head_dim, buffers.shapes.page_tokens
        count, end = stop - start, page + tokens
        self.scores = buffers.scores[: heads * count * (end + ASIDE)].view(heads, count, end + ASIDE)
        self.seen, self.near, self.aside = self.scores[:, :, :end], self.scores[:, :, page:end], self.scores[:, :, end:]
        parts = buffers.joined[start:stop].view(count, 3, heads, width)
        self.query = parts[:, 0].transpose(0, 1)
        self.read = buffers.read[start:stop].view(count, heads, width).transpose(0, 1)
        keys, values = (
            each[:, :end].view(sizes.layers, end, heads, width).transpose(1, 2)
            for each in (buffers.keys[slot], buffers.values[slot])
        )
        self.keys, self.values = keys.transpose(2, 3).unbind(0), values.unbind(0)
        own = self.scores[:, alone:, end : end + 1]
        self.own_out, self.own_share = own.squeeze(-1).T, own
        self.own_query, self.own_key = parts[alone:, 0], parts[alone:, 1]
        self.own_value = parts[alone:, 2].transpose(0, 1)
        self.own_read, self.product = self.read[:, alone:], buffers.own[: count - alone].view(-1, heads, width)
        self.has_own = alone < count


class Views:
    """Views of one set of buffers, made once for each shape."""

    def __init__(self, buffers: Buffers, sizes: Sizes) -> None:
        self.buffers, self._sizes = buffers, sizes
        self._rows: dict[int, RowViews] = {}
        self._readings: dict[tuple[int, int, int, int, int], Reading] = {}

    def rows(self, total: int) -> RowViews:
        """Of a pass of so many rows."""
        found = self._rows.get(total)
        if found is None:
            found = self._rows[total] = RowViews(self.buffers, self._sizes, total)
        return found

    def reading(self, slot: int, start: int, stop: int, alone: int, page: int) -> Reading:
        """Of these rows."""
        key = slot, start, stop, alone, page
        found = self._readings.get(key)
        if found is None:
            if len(self._readings) >= KEPT_VIEWS:
                self._readings.clear()
            found = self._readings[key] = Reading(self.buffers, self._sizes, *key)
        return found


@dataclass(frozen=True)
class Group:
    """A reading and what its rows do not see of the page: 0, or −inf, [rows or 1, page_tokens].

    Args:
        full: which of the pages that the span fills it is in, None where that stays open.
    """

    reading: Reading
    hidden: Tensor
    full: int | None


@dataclass(frozen=True)
class Pass:
    """Rows of one request, or of several that are scored together.

    Args:
        turn: complex [rows, 2 · heads, head_dim / 2].
        groups: of rows that read the same pages, in order; of a request with candidates there is one.
        only_kept: nobody asks what comes out of the last layer.
    """

    parts: tuple[Part, ...]
    turn: Tensor
    views: RowViews
    groups: tuple[Group, ...]
    only_kept: bool


class Sight:
    """What rows see of the page that they read exactly.

    Args:
        page_tokens: entries of a page.
    """

    def __init__(self, page_tokens: int) -> None:
        self._tokens = page_tokens
        self._causal = torch.full((page_tokens, page_tokens), -torch.inf).triu_(1)
        self._nothing = torch.full((1, page_tokens), -torch.inf)

    def of(self, views: Views, part: Part) -> tuple[Group, ...]:
        """The groups of a request's rows."""
        return (self._of_candidates(views, part),) if part.places else self._of_events(views, part)

    def _of_events(self, views: Views, part: Part) -> tuple[Group, ...]:
        """Of a span without candidates: one for each page."""
        groups: list[Group] = []
        span, tokens, to_row = part.span, self._tokens, part.start - part.span.block
        end = span.block + span.rows
        for page in range(span.block // tokens * tokens, end, tokens):
            first, stop = max(span.block, page), min(end, page + tokens)
            reading = views.reading(part.slot, first + to_row, stop + to_row, stop - first, page)
            full = len(groups) if span.stop >= page + tokens else None
            groups.append(Group(reading, self._causal[first - page : stop - page], full))
        return tuple(groups)

    def _of_candidates(self, views: Views, part: Part) -> Group:
        """The one of a span in one granule, or of none, and of candidates."""
        span = part.span
        page = max(span.stop - 1, 0) // self._tokens * self._tokens
        hidden = self._causal[span.stop - 1 - page][None] if span.stop else self._nothing
        if span.rows:
            first = span.block - page
            hidden = torch.cat((self._causal[first : first + span.rows], hidden.expand(part.places, -1)))
        return Group(views.reading(part.slot, part.start, part.stop, span.rows, page), hidden, None)
