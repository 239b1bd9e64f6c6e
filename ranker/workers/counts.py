"""Counts of several processes added up: numbers, rows of numbers, and mappings of such, whatever they count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ranker.workers.errors import FeedError

Counts = Mapping[str, Any]


def added(one: Counts, other: Counts) -> dict[str, Any]:
    """Both together. Raises FeedError where they do not fit."""
    total = dict(one)
    for name, count in other.items():
        total[name] = _sum(name, total[name], count) if name in total else count
    return total


def with_totals(status: Counts, totals: Counts) -> dict[str, Any]:
    """A status with other processes' totals added where it has the same figure; the rest stays this process's own."""
    found = dict(status)
    for name, count in totals.items():
        own = found.get(name)
        if isinstance(count, Mapping):
            found[name] = with_totals(own if isinstance(own, Mapping) else {}, count)
        else:
            found[name] = count if own is None else _sum(name, own, count)
    return found


def _sum(name: str, one: Any, other: Any) -> Any:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return added(one, other)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [_sum(name, *pair) for pair in zip(one, other, strict=True)]
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one + other
    raise FeedError(f"counts of {name!r} do not fit: {one!r} and {other!r}")


def unpacked(counts: bytes) -> Counts:
    """Counts as they came over the feed. Raises FeedError."""
    try:
        return msgspec.msgpack.decode(counts, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise FeedError(f"no counts: {error}") from error
