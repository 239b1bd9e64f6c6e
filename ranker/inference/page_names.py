"""The names of users' pages, remembered so that a request hashes only what happened since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from ranker.inference.page_hash import Scope, extended, root

MAX_EVENTS = 65_536
"""Of all windows that are remembered; their bytes are mostly those that their owner keeps too."""


@dataclass(frozen=True)
class _Kept:
    """Names of a window's pages, the root's first."""

    scope: Scope
    start: int
    window: Sequence[bytes]
    names: list[bytes]


class PageNames:
    """By user. Safe to use from several threads.

    Args:
        max_events: of all windows together; who was asked about longest ago leaves, the last one stays.
    """

    def __init__(self, page_tokens: int, max_events: int = MAX_EVENTS) -> None:
        self._tokens, self._max_events, self._events = page_tokens, max_events, 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, scope: Scope, start: int, window: Sequence[bytes]) -> list[bytes]:
        """The root's name, then that of each full page of the window: those of `page_hash.names`.

        Raises:
            InvalidSize: an event is not bytes.
        """
        with self._lock:
            kept = self._kept.get(scope.user)
        names = extended(self._begun(kept, scope, start, window), window, self._tokens)
        self._keep(_Kept(scope, start, window, names))
        return names

    def forget(self, user: str) -> None:
        """Drops a user's."""
        with self._lock:
            self._drop(user)

    def _begun(self, kept: _Kept | None, scope: Scope, start: int, window: Sequence[bytes]) -> list[bytes]:
        """As many of the names as are known."""
        if kept is None or kept.start != start or kept.scope != scope:
            return [root(scope, start)]
        pages = min(len(kept.names) - 1, len(window) // self._tokens)
        end = pages * self._tokens
        # the same objects, mostly: this compares addresses
        if window[:end] != kept.window[:end]:
            return kept.names[:1]
        return kept.names[: pages + 1]

    def _keep(self, found: _Kept) -> None:
        with self._lock:
            self._drop(found.scope.user)
            self._kept[found.scope.user] = found
            self._events += len(found.window)
            while self._events > self._max_events and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))

    def _drop(self, user: str) -> None:
        left = self._kept.pop(user, None)
        self._events -= len(left.window) if left is not None else 0
