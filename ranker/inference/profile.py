"""Where the memory is: one look at the pool, the pages and, on CUDA, the framework's own allocator.

External fragmentation is 1 − largest free run / free: how much of what is free one lease could not have. Internal
fragmentation is 1 − used tokens / (occupied pages · tokens of a page): how much of the occupied pages holds nothing.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ranker.inference.arena import cuda
from ranker.inference.hot_spots import KEPT_S, HotSpot
from ranker.inference.memory_errors import InvalidSize
from ranker.inference.page_table import PageCounts
from ranker.inference.pages import Pages
from ranker.inference.pool import MemoryPool


class PageProfile(msgspec.Struct, frozen=True):
    """Pages by state, and what they are used for.

    Args:
        open_histories: that hold pins now.
        reuse: share of the tokens of all histories so far that needed no encoding; 0 before the first.
        busy: histories refused because too many pages were in use.
    """

    full: PageCounts
    tail: PageCounts
    trash: int
    page_tokens: int
    open_histories: int
    reuse: float
    busy: int


class FrameworkProfile(msgspec.Struct, frozen=True):
    """The CUDA allocator's snapshot, in bytes.

    Args:
        fragmentation: 1 − allocated / reserved.
        segments: taken from the device.
        largest_inactive: block that is reserved and not allocated.
    """

    allocated: int
    reserved: int
    peak_allocated: int
    fragmentation: float
    segments: int
    largest_inactive: int


class MemoryProfile(msgspec.Struct, frozen=True):
    """What `nextaction profile` and `GET /v1/memory` print; bytes, and shares from 0 to 1.

    Args:
        used_bytes: lent now, and
        reserved_bytes: held from the device and not lent; together the capacity.
        outside_bytes: of the device, in use by what is not the pool.
        share: (used + reserved + outside) / limit; never above `share_limit`.
        largest_run_bytes: the largest lease that would fit.
        hot_parts: who took most bytes in the window, and
        hot_shapes: for what.
        pages: None when there are none.
        framework: None but on CUDA.
    """

    device: str
    limit_bytes: int
    capacity_bytes: int
    used_bytes: int
    reserved_bytes: int
    outside_bytes: int
    peak_bytes: int
    share: float
    share_limit: float
    leases: int
    largest_run_bytes: int
    external_fragmentation: float
    internal_fragmentation: float
    window_s: float
    hot_parts: list[HotSpot]
    hot_shapes: list[HotSpot]
    pages: PageProfile | None
    framework: FrameworkProfile | None


def profile(pool: MemoryPool, pages: Pages | None = None, window_s: float = 60.0) -> MemoryProfile:
    """The memory now, and who took it in the last seconds.

    Args:
        window_s: above 0; at most 300 are kept.

    Raises:
        InvalidSize: the window is not a positive number.
    """
    if not (math.isfinite(window_s) and window_s > 0):
        raise InvalidSize(f"window_s must be a positive number, not {window_s!r}")
    space = pool.space()
    held = pool.capacity_bytes + pool.outside_bytes
    return MemoryProfile(
        device=pool.device,
        limit_bytes=pool.limit_bytes,
        capacity_bytes=pool.capacity_bytes,
        used_bytes=pool.capacity_bytes - space.free,
        reserved_bytes=space.free,
        outside_bytes=pool.outside_bytes,
        peak_bytes=pool.peak_bytes,
        share=held / pool.limit_bytes,
        share_limit=pool.share,
        leases=space.leases,
        largest_run_bytes=space.largest_run,
        external_fragmentation=1.0 - space.largest_run / space.free if space.free else 0.0,
        internal_fragmentation=internal_fragmentation(pages) if pages is not None else 0.0,
        window_s=min(window_s, float(KEPT_S)),
        hot_parts=pool.hot_spots.by_part(window_s),
        hot_shapes=pool.hot_spots.by_shape(window_s),
        pages=_pages(pages) if pages is not None else None,
        framework=None if pool.device == "cpu" else framework(pool.device),
    )


def internal_fragmentation(pages: Pages) -> float:
    """1 − used tokens / (occupied pages · tokens of a page), tails included; 0 when none is occupied."""
    counts = pages.counts().values()
    room = sum(each.pinned + each.cached for each in counts) * pages.config.page_tokens
    return 1.0 - sum(each.tokens for each in counts) / room if room else 0.0


def framework(device: str) -> FrameworkProfile:
    """The CUDA allocator's own figures.

    Raises:
        DeviceMissing: there is no such device.
    """
    library = cuda(device)
    stats: dict[str, Any] = library.cuda.memory_stats(device)
    number = library.device(device).index or 0
    segments = [each for each in library.cuda.memory_snapshot() if each["device"] == number]
    return summarise(stats, segments)


def summarise(stats: dict[str, Any], segments: list[dict[str, Any]]) -> FrameworkProfile:
    """The profile's figures from `memory_stats` and `memory_snapshot` of one device."""
    allocated = int(stats.get("allocated_bytes.all.current", 0))
    reserved = int(stats.get("reserved_bytes.all.current", 0))
    inactive = [block["size"] for segment in segments for block in segment["blocks"] if block["state"] == "inactive"]
    return FrameworkProfile(
        allocated=allocated,
        reserved=reserved,
        peak_allocated=int(stats.get("allocated_bytes.all.peak", 0)),
        fragmentation=1.0 - allocated / reserved if reserved else 0.0,
        segments=len(segments),
        largest_inactive=max(inactive, default=0),
    )


def _pages(pages: Pages) -> PageProfile:
    counts, stats = pages.counts(), pages.stats
    tokens = stats.tokens_reused + stats.tokens_new
    return PageProfile(
        full=counts["full"],
        tail=counts["tail"],
        trash=len(counts),
        page_tokens=pages.config.page_tokens,
        open_histories=pages.open_histories,
        reuse=stats.tokens_reused / tokens if tokens else 0.0,
        busy=stats.busy,
    )
