"""How much of a history is encoded already: full pages by name, then a tail page by exact prefix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ranker.inference.page_list import Page
from ranker.inference.page_table import PageTable


@dataclass(frozen=True)
class Match:
    """What was found; nothing is pinned yet.

    Args:
        names: the root's, then those of the full pages of the window.
        full: pages found, a prefix of the window's.
        source: the tail page that goes on from there, if it shares anything.
        source_tokens: entries it shares.
        reads_tail: it holds all that is left of the window, so nothing has to be written.
        needs_tail: the window does not end with a full page.
    """

    names: list[bytes]
    full: list[Page]
    source: Page | None
    source_tokens: int
    reads_tail: bool
    needs_tail: bool

    @property
    def fresh_pages(self) -> int:
        """Full pages that have to be taken."""
        return len(self.names) - 1 - len(self.full)

    @property
    def fresh_tails(self) -> int:
        """Tail pages that have to be taken, 0 or 1."""
        return int(self.needs_tail and not self.reads_tail)


def match(full: PageTable, tails: PageTable, names: list[bytes], window: Sequence[bytes], page_tokens: int) -> Match:
    """The longest encoded prefix of a window."""
    found = _found(full, names[1:])
    segment = window[len(found) * page_tokens : (len(found) + 1) * page_tokens]  # what follows them
    source = tails.find(names[len(found)])
    shared = common_prefix(source.events, segment) if source is not None else 0
    needs_tail = len(window) % page_tokens > 0
    is_last = needs_tail and len(found) == len(names) - 1
    return Match(
        names=names,
        full=found,
        source=source if shared else None,
        source_tokens=shared,
        reads_tail=is_last and 0 < shared == len(segment),
        needs_tail=needs_tail,
    )


def common_prefix(known: Sequence[bytes], wanted: Sequence[bytes]) -> int:
    """Its length."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, wanted, strict=False)))


def _found(full: PageTable, names: Iterable[bytes]) -> list[Page]:
    pages = []
    for name in names:
        page = full.find(name)
        if page is None:
            break
        pages.append(page)
    return pages
