"""A memory report as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ranker.inference.hot_spots import HotSpot
from ranker.inference.memory_report import MemoryReport, PoolMemory, ShardMemory
from ranker.inference.page_table import PageCounts
from ranker.inference.plan_device import gib
from ranker.inference.process_memory import ProcessMemory
from ranker.inference.profile import FrameworkProfile, MemoryProfile, PageProfile
from ranker.terminal import plain, stdout


def show(report: MemoryReport, whose: str) -> None:
    """The process, then each pool."""
    console = stdout()
    console.print(_process(report.process, whose))
    for part, held in report.service.items():
        sizes = ", ".join(f"{name} {size:,}" for name, size in held.items()) if isinstance(held, dict) else f"{held:,}"
        console.print(plain(f"{part}: {sizes}"))
    if not report.pools:
        console.print("no pool: no engine runs in this process")
    for pool in report.pools:
        for table in _pool(pool):
            console.print(table)


def _process(process: ProcessMemory, whose: str) -> Table:
    table = Table("process", title=plain(whose), title_justify="left")
    table.add_column("", justify="right")
    resident = "unknown" if process.resident_bytes is None else gib(process.resident_bytes)
    for name, value in (
        ("resident", resident),
        ("resident at most", gib(process.peak_resident_bytes)),
        ("left by the machine", gib(process.available_bytes)),
        ("page faults, minor", f"{process.minor_faults:,}"),
        ("page faults, major", f"{process.major_faults:,}"),
        ("collections by generation", " ".join(f"{count:,}" for count in process.gc_collections)),
        ("objects frozen", f"{process.gc_frozen:,}"),
        ("threads", f"{process.threads:,}"),
    ):
        table.add_row(name, value)
    return table


def _pool(pool: PoolMemory) -> list[Table]:
    profile = pool.profile
    tables = [_figures(pool.name, profile)]
    if profile.pages is not None:
        tables.append(_pages(profile.pages))
    for by, spots in (("part", profile.hot_parts), ("shape", profile.hot_shapes)):
        if spots:
            tables.append(_hot(by, spots, profile.window_s))
    if profile.framework is not None:
        tables.append(_framework(profile.framework))
    if pool.shards is not None:
        tables.append(_shards(pool.shards))
    return tables


def _figures(name: str, profile: MemoryProfile) -> Table:
    title = f"pool {name} on {profile.device}"
    return _pairs(
        "memory",
        plain(title),
        (
            ("limit", gib(profile.limit_bytes)),
            ("share held", f"{profile.share:.1%} of at most {profile.share_limit:.1%}"),
            ("capacity of the pool", gib(profile.capacity_bytes)),
            ("  used", f"{gib(profile.used_bytes)} in {profile.leases:,} leases"),
            ("  reserved, not used", gib(profile.reserved_bytes)),
            ("  peak", gib(profile.peak_bytes)),
            ("  largest run", gib(profile.largest_run_bytes)),
            ("in use outside the pool", gib(profile.outside_bytes)),
            ("external fragmentation", f"{profile.external_fragmentation:.1%}"),
            ("internal fragmentation", f"{profile.internal_fragmentation:.1%}"),
        ),
    )


def _pages(pages: PageProfile) -> Table:
    title = f"pages of {pages.page_tokens} tokens; {pages.reuse:.1%} found encoded, {pages.busy:,} busy"
    table = Table("pages", title=title, title_justify="left")
    for name in ("pinned", "cached", "empty", "tokens", "evicted so far"):
        table.add_column(name, justify="right")
    for kind, counts in (("full", pages.full), ("tail", pages.tail)):
        table.add_row(kind, *_counts(counts))
    return table


def _counts(counts: PageCounts) -> Sequence[str]:
    figures = (counts.pinned, counts.cached, counts.empty, counts.tokens, counts.evictions)
    return [f"{figure:,}" for figure in figures]


def _hot(by: str, spots: Sequence[HotSpot], window_s: float) -> Table:
    table = Table(by, title=f"hot spots by {by}, last {window_s:g} s", title_justify="left")
    for name in ("takes", "all together", "largest"):
        table.add_column(name, justify="right")
    for spot in spots:
        table.add_row(plain(spot.name), f"{spot.takes:,}", gib(spot.total_bytes), gib(spot.largest_bytes))
    return table


def _framework(framework: FrameworkProfile) -> Table:
    return _pairs(
        "framework",
        "the framework's allocator",
        (
            ("allocated", f"{gib(framework.allocated)}, at most {gib(framework.peak_allocated)}"),
            ("reserved", f"{gib(framework.reserved)} in {framework.segments:,} segments"),
            ("largest inactive block", gib(framework.largest_inactive)),
            ("fragmentation", f"{framework.fragmentation:.1%}"),
        ),
    )


def _shards(shards: ShardMemory) -> Table:
    versions = [(plain(f"  {version}"), gib(nbytes)) for version, nbytes in shards.resident_by_version.items()]
    return _pairs(
        "shards",
        "shard cache",
        (
            ("resident", gib(shards.resident_bytes)),
            *versions,
            ("pinned", gib(shards.pinned_bytes)),
            ("reserved for loads", gib(shards.reserved_bytes)),
            ("hits, misses", f"{shards.hits:,}, {shards.misses:,}"),
            ("loads, failures, evictions", f"{shards.loads:,}, {shards.failures:,}, {shards.evictions:,}"),
        ),
    )


def _pairs(heading: str, title: str, pairs: Sequence[tuple[str, str]]) -> Table:
    table = Table(heading, title=title, title_justify="left")
    table.add_column("", justify="right")
    for name, value in pairs:
        table.add_row(name, value)
    return table
