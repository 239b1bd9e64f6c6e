"""Encoded histories in fixed pages: what was encoded before is found again by the chained hash of its events.

    with pages.open(scope, events) as history:
        ...encode history.new into the pages of history.layout...
        history.commit()

Two kinds of page. A full page is quantised once and never changes. What does not fill a page stays exact in a tail
page, which does not change either: a history that goes on copies the entries it shares into a tail of its own, so
readers, writers that fail and twins of one user in a batch cannot disturb each other. Pages belong to one scope, and so
to one user. Nothing is evicted that anyone uses: when too little is left the answer is `PagesBusy`, and nothing was
pinned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from ranker.inference.history import Held, History, Layout
from ranker.inference.memory_errors import HistoryTooLong, InvalidSize, LeaseError, PagesBusy
from ranker.inference.page_hash import Scope, window_start
from ranker.inference.page_match import Match, match
from ranker.inference.page_names import PageNames
from ranker.inference.page_table import TRASH, PageCounts, PageTable
from ranker.inference.sizes import whole

__all__ = ["TRASH", "History", "Layout", "PageConfig", "Pages", "PagesBusy", "Scope"]

Eraser = Callable[[str, int], None]
"""Told the kind of page (`full` or `tail`) and its id."""


@dataclass(frozen=True)
class PageConfig:
    """How many pages, and how long.

    Args:
        pages: full pages, beside the trash page.
        tails: exact tail pages, beside their trash page; one history alone may need two.
        page_tokens: entries of a page.
        longest: L, the most events of a user that are encoded; even.
    """

    pages: int
    tails: int
    page_tokens: int = 32
    longest: int = 1024

    def __post_init__(self) -> None:
        whole(self.pages, "pages", minimum=0)
        whole(self.tails, "tails", minimum=2)
        whole(self.page_tokens, "page_tokens")
        if whole(self.longest, "longest", minimum=2) % 2:
            raise InvalidSize(f"longest must be even, since half of it is dropped at a time, not {self.longest}")


def keep(kind: str, page: int) -> None:
    """The eraser of pages without bytes."""


class PageStats(msgspec.Struct):
    """Counts since the start."""

    opened: int = 0
    busy: int = 0
    tokens_reused: int = 0
    tokens_new: int = 0

    def count(self, layout: Layout) -> None:
        """One history was opened."""
        self.opened += 1
        self.tokens_reused += layout.cached
        self.tokens_new += layout.tokens - layout.cached


class Pages:
    """Bookkeeping of ids, names and pins. Safe to use from several threads.

    Args:
        erase: told each page that goes from one user to another, or whose user is forgotten, to overwrite its bytes.
    """

    def __init__(self, config: PageConfig, erase: Eraser = keep) -> None:
        self.config = config
        self.full = PageTable(config.pages, lambda page: erase("full", page))
        self.tails = PageTable(config.tails, lambda page: erase("tail", page))
        self.stats = PageStats()
        self._names = PageNames(config.page_tokens)
        self._open: set[History] = set()
        self._lock = threading.Lock()

    @property
    def open_histories(self) -> int:
        """Histories that hold pins now."""
        return len(self._open)

    def require(self, total: int) -> None:
        """Admission: refuses a history that would not fit into an empty arena.

        Args:
            total: all events of the user.

        Raises:
            HistoryTooLong: its window needs more pages than there are.
        """
        total = whole(total, "total", minimum=0)
        needed = (total - window_start(total, self.config.longest)) // self.config.page_tokens
        if needed > self.config.pages:
            raise HistoryTooLong(needed, self.config.pages)

    def new_tokens(self, scope: Scope, events: Sequence[bytes], total: int | None = None) -> int:
        """How many events would have to be encoded now; pins nothing, so it may change."""
        start, window = self._window(events, total)
        chained = self._names.of(scope, start, window)
        with self._lock:
            return len(window) - self._cached(self._match(chained, window))

    def open(self, scope: Scope, events: Sequence[bytes], total: int | None = None) -> History:
        """Finds the longest encoded prefix, pins it, and takes pages for the rest.

        Args:
            events: the user's latest events, oldest first; each the bytes of all that the model reads of it. They must
                cover the window.
            total: all events that the user has; the number of `events` when None.

        Raises:
            HistoryTooLong: it would not fit into an empty arena.
            PagesBusy: too much of the arena is in use.
            InvalidSize: `events` do not cover the window.
        """
        start, window = self._window(events, total)
        chained = self._names.of(scope, start, window)
        with self._lock:
            found = self._match(chained, window)
            self._check_room(found)
            held = self._pin(scope, window, found)
            history = History(self, self._layout(start, window, found, held), window, held)
            self._open.add(history)
            self.stats.count(history.layout)
        return history

    def commit(self, history: History) -> None:
        """For `History` only: what it encoded can be found from now on."""
        with self._lock:
            if history.released:
                raise LeaseError("a history that was released cannot be committed")
            if not history.committed:
                history.committed = True
                self._publish(history)

    def release(self, history: History) -> None:
        """For `History` only: unpins, the deepest page first, so that it is the first to leave."""
        with self._lock:
            if history.released:
                raise LeaseError("a history was released twice")
            history.released = True
            self._open.remove(history)
            for tail in history.held.tails:
                self.tails.unpin(tail)
            for page in reversed(history.held.full):
                self.full.unpin(page)

    def forget(self, user: str) -> int:
        """Erases all that holds a user's content: at once what nobody uses, the rest when it is released.

        Returns:
            How many pages.
        """
        self._names.forget(user)
        with self._lock:
            return self.full.forget(user) + self.tails.forget(user)

    def retire(self, model: str) -> int:
        """Gives up all pages of a model version; says how many."""
        with self._lock:
            return self.full.retire(model) + self.tails.retire(model)

    def counts(self) -> dict[str, PageCounts]:
        """Pages by state, for each kind."""
        with self._lock:
            return {"full": self.full.counts(), "tail": self.tails.counts()}

    def check_integrity(self) -> None:
        """Every page is free or owned exactly once, names are consistent, and pins are those of the open histories."""
        with self._lock:
            held = [history.held for history in self._open]
            full = sum(len(each.full) for each in held)
            tails = sum(len(each.tails) for each in held)
            assert (self.full.check_integrity(), self.tails.check_integrity()) == (full, tails), "pins do not balance"

    def _window(self, events: Sequence[bytes], total: int | None) -> tuple[int, Sequence[bytes]]:
        total = len(events) if total is None else whole(total, "total", minimum=0)
        self.require(total)
        start = window_start(total, self.config.longest)
        if not total - start <= len(events) <= total:
            raise InvalidSize(f"{len(events)} events do not cover the window {start} to {total} of the history")
        return start, events[len(events) - (total - start) :]

    def _match(self, chained: list[bytes], window: Sequence[bytes]) -> Match:
        return match(self.full, self.tails, chained, window, self.config.page_tokens)

    def _cached(self, found: Match) -> int:
        return len(found.full) * self.config.page_tokens + found.source_tokens

    def _check_room(self, found: Match) -> None:
        sources = [found.source] if found.source is not None else []
        for kind, table, needed, pages in (
            ("full", self.full, found.fresh_pages, found.full),
            ("tail", self.tails, found.fresh_tails, sources),
        ):
            evictable = len(table.free) - sum(page.pins == 0 for page in pages)  # what was found must stay
            if needed > evictable:
                self.stats.busy += 1
                raise PagesBusy(kind, needed, evictable)

    def _pin(self, scope: Scope, window: Sequence[bytes], found: Match) -> Held:
        for page in found.full:
            self.full.pin(page)
        if found.source is not None:
            self.tails.pin(found.source)
        fresh = [self.full.take(scope, self.config.page_tokens) for _ in range(found.fresh_pages)]
        tail = found.source if found.reads_tail else None
        if found.fresh_tails:
            tail = self.tails.take(scope, len(window) % self.config.page_tokens)
        return Held(found.names, found.full + fresh, tail, found.source)

    def _layout(self, start: int, window: Sequence[bytes], found: Match, held: Held) -> Layout:
        return Layout(
            start=start,
            tokens=len(window),
            cached=self._cached(found),
            full=tuple(page.id for page in held.full),
            fresh=found.fresh_pages,
            tail=held.tail.id if held.tail is not None else None,
            tail_tokens=len(window) % self.config.page_tokens,
            source=held.source.id if held.source is not None else None,
            source_tokens=found.source_tokens,
        )

    def _publish(self, history: History) -> None:
        held = history.held
        for index in range(len(held.full) - history.layout.fresh, len(held.full)):
            self.full.publish(held.full[index], held.names[index + 1])
            if self.full.find(held.names[index + 1]) is not None:
                self._drop_tail(held.names[index], ())  # its entries are in the page that now follows that name
        if held.tail is None or held.reads_tail or held.tail.doomed:
            return
        events = tuple(history.window[len(held.full) * self.config.page_tokens :])
        if self._drop_tail(held.names[-1], events):
            self.tails.publish(held.tail, held.names[-1], events)

    def _drop_tail(self, name: bytes, events: tuple[bytes, ...]) -> bool:
        """Makes way under a name for a tail of these events; False when the one that is there holds them all."""
        old = self.tails.find(name)
        if old is None:
            return True
        if events and old.events[: len(events)] == events:
            return False
        self.tails.unpublish(old)
        return True
