"""A user's encoded history while a batch uses it: its pages are pinned until the block ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from ranker.inference.page_list import Page


@dataclass(frozen=True)
class Layout:
    """Where a history's window lies, in page ids.

    Args:
        start: index of the window's first event among all of the user's.
        tokens: events in the window.
        cached: of these, how many need not be encoded.
        full: pages in order; the last `fresh` of them are to be written.
        fresh: pages not found.
        tail: the exact page of what does not fill a page, or None when the window ends with a full one.
        tail_tokens: entries of the tail once all is encoded.
        source: an exact page that holds the last `source_tokens` cached entries; never write to it, others may use it.
            When it is the tail, nothing has to be written. Else its entries are the first of what follows the pages
            that were found: of the first fresh page, or of the tail.
    """

    start: int
    tokens: int
    cached: int
    full: tuple[int, ...]
    fresh: int
    tail: int | None
    tail_tokens: int
    source: int | None
    source_tokens: int

    @property
    def copies(self) -> bool:
        """Whether the source's entries are to be copied to the tail."""
        return self.source is not None and self.fresh == 0 and self.tail != self.source


@dataclass(eq=False)
class Held:
    """The pages that a history has pinned, each once.

    Args:
        names: of the full pages, with the root's before them.
        tail: what does not fill a page; the source itself when that was found complete.
    """

    names: list[bytes]
    full: list[Page]
    tail: Page | None
    source: Page | None

    @property
    def reads_tail(self) -> bool:
        """Whether the tail was found as it is."""
        return self.tail is not None and self.tail is self.source

    @property
    def tails(self) -> list[Page]:
        """The tail pages that are pinned, each once."""
        pages = [self.tail] if self.reads_tail else [self.tail, self.source]
        return [page for page in pages if page is not None]


class Keeper(Protocol):
    """What a history needs of the pages."""

    def commit(self, history: History) -> None:
        """What the history encoded can be found from now on."""
        ...

    def release(self, history: History) -> None:
        """Its pins are gone."""
        ...


class History:
    """Pinned pages. Encode `new`, write it where `layout` says, then commit; without, what was new is dropped.

    Args:
        window: the events of the window.
    """

    def __init__(self, keeper: Keeper, layout: Layout, window: Sequence[bytes], held: Held) -> None:
        self.layout = layout
        self.window = window
        self.held = held
        self.committed = False
        self.released = False
        self._keeper = keeper

    @property
    def new(self) -> Sequence[bytes]:
        """The events that are not encoded yet."""
        return self.window[self.layout.cached :]

    def commit(self) -> None:
        """Says that the new entries are written, so that others may read them. A second time does nothing.

        Raises:
            LeaseError: the history was released.
        """
        self._keeper.commit(self)

    def release(self) -> None:
        """Unpins.

        Raises:
            LeaseError: it was released before.
        """
        self._keeper.release(self)

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.released:
            self.release()
