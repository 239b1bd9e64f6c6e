"""One kind of page: who is pinned, what can be found under which name, what is evicted next."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ranker.inference.page_hash import Scope
from ranker.inference.page_list import Page, PageList

TRASH = 0
"""The page that padding reads and writes: zeroed, never owned. NaN written by padding could not be masked away."""


class PageCounts(msgspec.Struct, frozen=True):
    """Pages by state; the first three are all there are, beside the trash page.

    Args:
        pinned: in use by a history now.
        cached: not in use, but findable: they are evicted when room is needed.
        empty: hold nothing.
        tokens: entries filled in pinned and cached pages.
        evictions: cached pages that gave way, since the start.
    """

    pinned: int
    cached: int
    empty: int
    tokens: int
    evictions: int


class PageTable:
    """Bookkeeping of plain numbers; the bytes live elsewhere.

    A page is pinned, or in the free list: never both, never neither. With a name it can be found in either place.
    It never holds bytes of two users: it is erased before it goes from one to another, and when its user is forgotten.

    Args:
        count: pages; their ids are 1 to count.
        erase: told the id of a page whose bytes must not outlive this call.
    """

    def __init__(self, count: int, erase: Callable[[int], None]) -> None:
        self.pages = tuple(Page(number + 1) for number in range(count))
        self.free = PageList()
        self._erase = erase
        self._named: dict[bytes, Page] = {}
        self._of_user: dict[str, dict[int, Page]] = {}
        self._occupied = 0
        self._tokens = 0
        self._evictions = 0
        for page in self.pages:
            self.free.push_last(page)

    def find(self, name: bytes) -> Page | None:
        """The page under a name; nothing is pinned."""
        return self._named.get(name)

    def pin(self, page: Page) -> None:
        """Protects a page that was found."""
        if page.pins == 0:
            self.free.remove(page)
        page.pins += 1

    def take(self, scope: Scope, tokens: int) -> Page:
        """The page that has been free longest, emptied of its name and pinned; the caller knows that there is one."""
        page = self.free.pop_first()
        if page.name is not None:
            self._evictions += 1
            self._clear(page)
        if page.user is not None and page.user != scope.user:
            self._disown(page)
        page.pins, page.scope, page.user, page.tokens = 1, scope, scope.user, tokens
        self._of_user.setdefault(scope.user, {})[page.id] = page
        self._occupied += 1
        self._tokens += tokens
        return page

    def publish(self, page: Page, name: bytes, events: tuple[bytes, ...] = ()) -> None:
        """Makes a pinned page findable, unless its user was forgotten meanwhile or the name is taken."""
        if not page.doomed and name not in self._named:
            self._named[name] = page
            page.name, page.events = name, events

    def unpublish(self, page: Page) -> None:
        """Nobody finds the page from now on; it is empty as soon as nobody uses it."""
        if page.name is None:
            return
        del self._named[page.name]
        page.name, page.events = None, ()
        if page.pins == 0:
            self.free.remove(page)
            self._put_back(page)

    def unpin(self, page: Page) -> None:
        """One history fewer uses the page; the last one leaves it to the LRU."""
        assert page.pins > 0, f"page {page.id} is not pinned"
        page.pins -= 1
        if page.pins == 0:
            self._put_back(page)

    def forget(self, user: str) -> int:
        """Unnames and erases all that holds a user's bytes, what is in use at its last release; says how many."""
        pages = list(self._of_user.get(user, {}).values())
        for page in pages:
            self.unpublish(page)
            if page.pins:
                page.doomed = True
            else:
                self._disown(page)
        return len(pages)

    def retire(self, model: str) -> int:
        """Unnames all that a model version made, so that its room is used first; says how many."""
        pages = [page for page in self.pages if page.scope is not None and page.scope.model == model]
        for page in pages:
            self.unpublish(page)
        return len(pages)

    def counts(self) -> PageCounts:
        """Pages by state now."""
        pinned = len(self.pages) - len(self.free)
        empty = len(self.pages) - self._occupied
        return PageCounts(pinned, self._occupied - pinned, empty, self._tokens, self._evictions)

    def check_integrity(self) -> int:
        """Every page is free or pinned, owned exactly once, and findable under its own name; answers Σ pins."""
        self.free.check_integrity()
        free = {page.id for page in self.free}
        assert len(free) == len(self.free) and free <= {page.id for page in self.pages}, "a page is free twice"
        owned = [number for pages in self._of_user.values() for number in pages]
        assert len(owned) == len(set(owned)), "a page has two users"
        for page in self.pages:
            self._check(page, page.id in free)
        assert len(owned) == sum(page.user is not None for page in self.pages), "a page has lost its user"
        assert len(self._named) == sum(page.name is not None for page in self.pages), "a name has no page"
        assert self._occupied == sum(page.scope is not None for page in self.pages), "occupied pages are miscounted"
        assert self._tokens == sum(page.tokens for page in self.pages), "tokens are miscounted"
        return sum(page.pins for page in self.pages)

    def _check(self, page: Page, is_free: bool) -> None:
        assert is_free == (page.pins == 0), f"page {page.id} is free and pinned, or neither"
        assert (page.scope is not None) == (page.pins > 0 or page.name is not None), f"page {page.id} is leaked"
        assert page.scope is None or page.scope.user == page.user, f"page {page.id} holds another user's bytes"
        assert page.user is None or self._of_user[page.user][page.id] is page, f"page {page.id} has lost its user"
        assert page.name is None or self._named.get(page.name) is page, f"page {page.id} has another's name"
        assert not page.doomed or (page.pins and page.name is None), f"page {page.id} was to be erased"

    def _put_back(self, page: Page) -> None:
        if page.name is not None:
            self.free.push_last(page)
            return
        if page.doomed:
            self._disown(page)
        self._clear(page)
        self.free.push_first(page)

    def _clear(self, page: Page) -> None:
        if page.name is not None:
            del self._named[page.name]
        self._occupied -= 1
        self._tokens -= page.tokens
        page.name, page.scope, page.tokens, page.events, page.doomed = None, None, 0, (), False

    def _disown(self, page: Page) -> None:
        assert page.user is not None
        self._erase(page.id)
        pages = self._of_user[page.user]
        del pages[page.id]
        if not pages:
            del self._of_user[page.user]
        page.user = None
