"""Names of pages: a chain of hashes through whose history it is, where its window starts, and every event so far.

Looking pages up by user and length alone would reuse wrong keys and values after a late or deleted event, or after a
new version: with the chain, whatever would change a page's content changes its name.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ranker.inference.memory_errors import InvalidSize

DIGEST_BYTES = 32


@dataclass(frozen=True)
class Scope:
    """Whose pages, made by what: histories of different scopes share nothing.

    Args:
        model: model and version, with whatever tables of embeddings it reads.
        schema: fingerprint of how an event becomes numbers.
        scheme: the format of keys and values.
        user: whose history it is.
    """

    model: str
    schema: str
    scheme: str
    user: str


def window_start(total: int, longest: int) -> int:
    """Index of the first event that is encoded: a pure function of how many events the user has.

    0 if n ≤ L, else (L/2)·⌈(n − L)/(L/2)⌉. Dropping the oldest event changes every deeper layer, so a window that slid
    by one at each event would never be a hit; this one moves once in L/2 events.

    Args:
        total: n, all events of the user.
        longest: L, the most that are encoded; even.
    """
    if total <= longest:
        return 0
    half = longest // 2
    return half * -(-(total - longest) // half)


def root(scope: Scope, start: int) -> bytes:
    """The name that stands before a history's first page."""
    parts = [part.encode() for part in (scope.model, scope.schema, scope.scheme, scope.user)]
    return blake2b(_framed([*parts, b"%d" % start]), digest_size=DIGEST_BYTES, person=b"root").digest()


def chain(parent: bytes, events: Sequence[bytes]) -> bytes:
    """The name of the page with these events after the page named `parent`."""
    return blake2b(parent + _framed(events), digest_size=DIGEST_BYTES, person=b"page").digest()


def names(scope: Scope, start: int, events: Sequence[bytes], page_tokens: int) -> list[bytes]:
    """The root's name, then that of each full page of the window.

    Raises:
        InvalidSize: an event is not bytes.
    """
    return extended([root(scope, start)], events, page_tokens)


def extended(begun: Sequence[bytes], events: Sequence[bytes], page_tokens: int) -> list[bytes]:
    """The names of a window of which the first are known: the root's, and those of some pages.

    Raises:
        InvalidSize: an event is not bytes.
    """
    found = list(begun)
    rest = events[(len(found) - 1) * page_tokens :]
    if not set(map(type, rest)) <= {bytes}:
        wrong = next(event for event in rest if type(event) is not bytes)
        raise InvalidSize(f"an event must be bytes that encode all the model reads of it, not {wrong!r}")
    for end in range(len(found) * page_tokens, len(events) + 1, page_tokens):
        found.append(chain(found[-1], events[end - page_tokens : end]))
    return found


def _framed(parts: Sequence[bytes]) -> bytes:
    """Count and lengths first: ab, c is not a, bc."""
    return struct.pack(f"<{len(parts) + 1}Q", len(parts), *map(len, parts)) + b"".join(parts)
