"""Keys and values of one history while a batch encodes it: what is cached is read, what is new is written to its pages.

    kv = HistoryKv(store, history, keys, values)    # buffers of the workspace
    for span in kv.spans():                         # always, also when nothing is new: it reads what is cached
        ...fill keys[layer, span] and values[layer, span], seeing [: span.stop], layer by layer...
    ...score candidates against kv.keys and kv.values...

A span never crosses a page. The one that fills a page has it quantised and read back, so what comes later sees the same
numbers whether the page was found or made just now: a result does not depend on what was cached, in any format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ranker.inference.history import History
from ranker.inference.memory_errors import InvalidSize
from ranker.inference.page_store import PageStore

if TYPE_CHECKING:
    import torch


class HistoryHold:
    """The `Hold` of a request with a history.

    Args:
        history: open; released with the hold.
        beside: tokens that the request costs beside its new events, such as its candidates.
    """

    __slots__ = ("history", "tokens")

    def __init__(self, history: History, beside: int) -> None:
        self.history = history
        self.tokens = len(history.new) + beside

    def release(self) -> None:
        """Unpins its pages."""
        self.history.release()


class HistoryKv:
    """The entries of a history's window, in order, in buffers of the caller.

    Args:
        history: open until after the last use of this.
        keys, values: float32, `[layers, at least layout.tokens, channels]`, each layer contiguous; they may be a part
            of a padded block for the whole batch.

    Raises:
        InvalidSize: a buffer does not fit.
    """

    def __init__(self, store: PageStore, history: History, keys: torch.Tensor, values: torch.Tensor) -> None:
        layers, channels = store.full.spec.layers, store.full.spec.channels
        for name, buffer in (("keys", keys), ("values", values)):
            shape = tuple(buffer.shape)
            if len(shape) != 3 or shape[::2] != (layers, channels) or shape[1] < history.layout.tokens:
                wanted = f"[{layers}, {history.layout.tokens} or more, {channels}]"
                raise InvalidSize(f"{name} must be {wanted}, not {list(shape)}")
        self._store = store
        self._history = history
        self._page_tokens = store.full.spec.page_tokens
        self._buffers = keys, values

    @property
    def keys(self) -> torch.Tensor:
        """`[layers, tokens, channels]`: of the whole window, once all spans are done."""
        return self._buffers[0][:, : self._history.layout.tokens]

    @property
    def values(self) -> torch.Tensor:
        """The same for the values."""
        return self._buffers[1][:, : self._history.layout.tokens]

    def spans(self) -> Iterator[slice]:
        """Positions in the window to encode, in order; what was filled is written when the next is asked for.

        Raises:
            NotFinite: what was filled cannot be kept; do not commit.
        """
        self._read()
        layout, first = self._history.layout, self._history.layout.cached
        while first < layout.tokens:
            last = min(layout.tokens, (first // self._page_tokens + 1) * self._page_tokens)
            yield slice(first, last)
            if last % self._page_tokens:
                self._write_tail(first, last)
            else:
                self._write_page(last)
            first = last

    def stretches(self, pages: int) -> Iterator[slice]:
        """Positions to encode, in order, of so many pages at once at most, for a caller that settles each layer.

        Raises:
            NotFinite: what was filled cannot be kept; do not commit.
        """
        self._read()
        layout, first, tokens = self._history.layout, self._history.layout.cached, self._page_tokens
        while first < layout.tokens:
            last = min(layout.tokens, (first // tokens + pages) * tokens)
            yield slice(first, last)
            if last % tokens:
                self._write_tail(max(first, last // tokens * tokens), last)
            first = last

    def settle(self, layer: int, pages: range, keys: torch.Tensor, values: torch.Tensor) -> bool:
        """Writes one layer of pages whose entries are all in the buffers; whether they are read back as others.

        Args:
            pages: of the window, in order.
            keys, values: `[at least pages, page_tokens, channels]`, filled with what will be read in their place.

        Raises:
            NotFinite: what was filled cannot be kept; do not commit.
        """
        if not pages:
            return False
        here = slice(pages.start * self._page_tokens, pages.stop * self._page_tokens)
        ids = self._history.layout.full[pages.start : pages.stop]
        as_kept = (keys[: len(pages)], values[: len(pages)]) if self._store.full.spec.scheme != "fp32" else None
        keys_here, values_here = (self._paged(each[layer, here]) for each in self._buffers)
        self._store.full.write(ids, layer, keys_here, values_here, as_kept=as_kept)
        return as_kept is not None

    def _read(self) -> None:
        layout = self._history.layout
        found = len(layout.full) - layout.fresh
        self._read_pages(0, layout.full[:found])
        if layout.source is not None:
            first = found * self._page_tokens
            self._store.tails.read_layers(layout.source, *self._entries(first, first + layout.source_tokens))
        self._store.prepare(self._history)

    def _write_page(self, end: int) -> None:
        index = end // self._page_tokens - 1
        page = self._history.layout.full[index : index + 1]
        for keys, values, layer in self._layers(end - self._page_tokens, end):
            self._store.full.write(page, layer, self._paged(keys), self._paged(values))
        if self._store.full.spec.scheme != "fp32":
            self._read_pages(end - self._page_tokens, page)

    def _write_tail(self, first: int, end: int) -> None:
        page, at = self._history.layout.tail, first % self._page_tokens
        assert page is not None, "entries after the last full page have no tail"
        self._store.tails.write_layers(page, at, *self._entries(first, end))

    def _read_pages(self, first: int, pages: tuple[int, ...]) -> None:
        if not pages:
            return
        self._store.full.read_layers(pages, *self._entries(first, first + len(pages) * self._page_tokens))

    def _entries(self, first: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self._buffers
        return keys[:, first:end], values[:, first:end]

    def _layers(self, first: int, end: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, int]]:
        keys, values = self._buffers
        for layer in range(len(keys)):
            yield keys[layer, first:end], values[layer, first:end], layer

    def _paged(self, entries: torch.Tensor) -> torch.Tensor:
        return entries.view(-1, self._page_tokens, entries.shape[-1])
