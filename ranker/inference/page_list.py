"""Pages, and the doubly-linked list of those not in use: the free list is the LRU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ranker.inference.page_hash import Scope


@dataclass(eq=False, slots=True)
class Page:
    """A fixed run of entries; made at start, never after.

    Args:
        id: its place in the arena, 1 and up.
        pins: open histories that use it.
        name: under which it can be found, or None.
        scope: whose content it holds or is getting, or None.
        user: whose bytes lie in it, findable or not, or None.
        tokens: entries that are, or are being, filled.
        events: of a tail, to find how much of it a history shares.
        doomed: erase it at its last release, whatever it holds.
    """

    id: int
    pins: int = 0
    name: bytes | None = None
    scope: Scope | None = None
    user: str | None = None
    tokens: int = 0
    events: tuple[bytes, ...] = ()
    doomed: bool = False
    before: Page | None = None
    after: Page | None = None


class PageList:
    """Head leaves first. A page is in it at most once; every operation is O(1)."""

    def __init__(self) -> None:
        self._ends = Page(-1)  # one sentinel closes the ring, so no link is ever missing inside it
        self._ends.before = self._ends.after = self._ends
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Page]:
        page = self._ends.after
        while page is not None and page is not self._ends:
            yield page
            page = page.after

    def push_last(self, page: Page) -> None:
        """To the end that stays longest."""
        self._link(self._ends.before, page, self._ends)

    def push_first(self, page: Page) -> None:
        """To the end that leaves next: it holds nothing worth keeping."""
        self._link(self._ends, page, self._ends.after)

    def remove(self, page: Page) -> None:
        """Unlinks a page that is in the list."""
        before, after = page.before, page.after
        assert before is not None and after is not None, f"page {page.id} is not in the free list"
        before.after, after.before = after, before
        page.before = page.after = None
        self._size -= 1

    def pop_first(self) -> Page:
        """Unlinks the page that has been free longest."""
        page = self._ends.after
        assert page is not None and page is not self._ends, "the free list is empty"
        self.remove(page)
        return page

    def check_integrity(self) -> None:
        """Links agree in both directions and the size is right."""
        seen, page = 0, self._ends
        while True:
            assert page.after is not None and page.after.before is page, f"broken link after page {page.id}"
            page = page.after
            if page is self._ends:
                break
            seen += 1
            assert seen <= self._size, "the free list has more pages than it counts"
        assert seen == self._size, f"the free list counts {self._size} pages and has {seen}"

    def _link(self, before: Page | None, page: Page, after: Page | None) -> None:
        assert page.before is None and page.after is None, f"page {page.id} is in the free list already"
        assert before is not None and after is not None
        page.before, page.after = before, after
        before.after = after.before = page
        self._size += 1
