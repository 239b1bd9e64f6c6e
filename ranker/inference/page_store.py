"""Pages with their bytes: the page arena, carved from the pool once."""

from __future__ import annotations

from dataclasses import dataclass

from ranker.inference.history import History
from ranker.inference.kv_pages import KvPages, TailPages
from ranker.inference.kv_spec import KvSpec
from ranker.inference.memory_errors import InvalidSize, PoolExhausted
from ranker.inference.pages import PageConfig, Pages
from ranker.inference.pool import MemoryPool
from ranker.inference.sizes import align_up

ROWS = 32


@dataclass(frozen=True)
class PageStore:
    """What a model needs to keep histories.

    Args:
        pages: who has which page.
        full: bytes of full pages.
        tails: bytes of exact tail pages.
    """

    pages: Pages
    full: KvPages
    tails: TailPages

    def prepare(self, history: History) -> None:
        """Brings the entries that a new tail shares with an old one into place; call it before the model runs."""
        layout = history.layout
        if layout.copies and layout.source is not None and layout.tail is not None:
            self.tails.copy(layout.source, layout.tail, layout.source_tokens)


def open_store(pool: MemoryPool, spec: KvSpec, config: PageConfig, rows: int = ROWS) -> PageStore:
    """Takes the arena of all pages; it is held as long as the pool.

    Args:
        rows: full pages handled at once.

    Raises:
        PoolExhausted: it does not fit; nothing is taken.
        InvalidSize: spec and config disagree on the tokens of a page.
    """
    if spec.page_tokens != config.page_tokens:
        raise InvalidSize(f"page_tokens is {spec.page_tokens} in the format and {config.page_tokens} in the pages")
    full_bytes = KvPages.bytes_needed(spec, config.pages, rows)
    tail_bytes = TailPages.bytes_needed(spec, config.tails)
    pool.require(align_up(full_bytes) + tail_bytes)
    full = KvPages(pool.lease(full_bytes, part="pages", shape=spec.scheme).acquire(), spec, config.pages, rows)
    tails = TailPages(pool.lease(tail_bytes, part="tail pages", shape="fp32").acquire(), spec, config.tails)
    pages = Pages(config, lambda kind, page: (full if kind == "full" else tails).erase(page))
    return PageStore(pages, full, tails)


def config_that_fits(nbytes: int, spec: KvSpec, tail_share: float = 0.25, longest: int = 1024) -> PageConfig:
    """The most pages that a run of bytes holds.

    Args:
        nbytes: what is left of the pool, such as its largest run.
        tail_share: of the bytes, for exact tails: every history has one, and short histories have nothing else.

    Raises:
        PoolExhausted: not even two tails and their trash pages fit.
    """
    if not 0.0 < tail_share < 1.0:
        raise InvalidSize(f"tail_share must be between 0 and 1, not {tail_share!r}")
    tails = max(2, int(tail_share * nbytes) // spec.tail_bytes - 1)
    left = nbytes - TailPages.bytes_needed(spec, tails) - align_up(KvPages.bytes_needed(spec, 0, ROWS))
    if left < 0:
        raise PoolExhausted(nbytes - left, nbytes, nbytes, "two tail pages and the scratch of a format are the least")
    return PageConfig(left // spec.page_bytes, tails, spec.page_tokens, longest)


__all__ = ["PageStore", "config_that_fits", "open_store"]
