"""Fills a store from the log: everything is applied in memory, then written in chunks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

from features.batch import apply_event, keep_s, pack_row
from features.errors import StoreUnavailable
from features.label_config import OutcomeWindows
from features.log import LogTail, Problem
from features.outcomes import WINDOWS
from features.population import Population
from features.state import Row, RowSet, State, updated_s
from features.store import ABSENT, Commit, FeatureStore
from features.store_layout import MAX_TTL_S
from features.store_marks import FILLING, GENERATION, LAST, last_applied

SLICE_EVENTS = 32
"""Applied between two turns of the event loop: rankings go on while a store is filled anew."""

CHUNK_ROWS = 1000
CHUNK_CELLS = 5000
READ_TIMEOUT_MS = 5000.0

Progress = Callable[[int, int], None]
"""Called with (events applied, rows and cells written) now and then."""

T = TypeVar("T")


@dataclass(frozen=True)
class Rebuilt:
    """What a store was filled with.

    Args:
        applied: number of log lines that are in effect.
        events: of these, those that could be read.
        skipped: events that changed nothing, by reason.
        problems: lines that could not be used, by kind.
        unusable: the first of them.
    """

    population: Population
    generation: str
    applied: int
    events: int
    rows: int
    cells: int
    skipped: Mapping[str, int]
    problems: Mapping[str, int]
    unusable: Sequence[Problem] = ()


@dataclass
class Replayed:
    """State after a log; `newest_s` is its latest event time, `last` the mark of its last event."""

    state: State = field(default_factory=State)
    rowset: RowSet = field(default_factory=RowSet)
    applied: int = 0
    events: int = 0
    newest_s: float = 0.0
    last: tuple[bytes, int] | None = None
    problems: Counter[str] = field(default_factory=Counter)
    unusable: list[Problem] = field(default_factory=list)


async def rebuild(
    logdir: Path,
    store: FeatureStore,
    generation: str,
    *,
    stop: int | None = None,
    progress: Progress | None = None,
    windows: OutcomeWindows = WINDOWS,
) -> Rebuilt:
    """Clears a store and fills it with the effects of a log.

    Args:
        generation: new name for what the store then holds.
        stop: only lines below this offset.
        windows: within which feedback counts.

    Raises:
        LogError: the log cannot be read.
        StoreError: the store failed; it is left without a generation, so nobody takes it for full.
    """
    replayed = await replay(logdir, stop, progress, windows)
    kept = {key: row for key, row in replayed.rowset.rows.items() if _may_be_read(key, row, replayed.newest_s)}
    # In a thread: both take long on the loop, and nobody else has these tables yet.
    cells = await asyncio.to_thread(_cells, replayed.state.population)
    await _fill(store, generation, replayed, kept, cells, progress)
    fresh = Population(replayed.state.population.max_tables)
    await asyncio.to_thread(fresh.load, cells, replayed.applied)
    return Rebuilt(
        fresh, generation, replayed.applied, replayed.events, len(kept), len(cells),
        dict(replayed.state.skipped), dict(replayed.problems), replayed.unusable,
    )  # fmt: skip


async def replay(
    logdir: Path, stop: int | None = None, progress: Progress | None = None, windows: OutcomeWindows = WINDOWS
) -> Replayed:
    """Applies a log in memory, giving the event loop a turn between slices.

    Raises:
        LogError: the log cannot be read.
    """
    replayed = Replayed(State(windows=windows))
    with closing(LogTail(logdir)) as tail:
        while events := tail.read(SLICE_EVENTS, stop):
            for offset, event in events:
                apply_event(replayed.state, offset, event, replayed.rowset)
                replayed.newest_s = max(replayed.newest_s, event.time_s)
            replayed.state.population.seal(tail.offset)
            replayed.rowset.changed.clear()
            replayed.events += len(events)
            replayed.last = last_applied(*events[-1], windows)
            if progress is not None:
                progress(replayed.events, 0)
            await asyncio.sleep(0)
        replayed.applied = tail.offset
        replayed.problems, replayed.unusable = tail.problems.counts, tail.problems.examples
    return replayed


async def _fill(
    store: FeatureStore, generation: str, replayed: Replayed, kept: Mapping[str, Row],
    cells: Mapping[tuple[str, str], bytes], progress: Progress | None,
) -> None:  # fmt: skip
    await store.clear()
    filling = generation.encode()
    # While it is filled, the offset counts the chunks: a server that died and came back without the last
    # ones, or with an old snapshot, takes no more.
    await store.commit(Commit(0, {FILLING: (filling, MAX_TTL_S)}, before=ABSENT))
    written = chunks = 0
    for keys in _chunks(kept, CHUNK_ROWS):
        packed = {key: (pack_row(kept[key]), keep_s(key)) for key in keys}
        await store.commit(Commit(chunks + 1, packed, before=chunks))
        written, chunks = _report(progress, replayed, written + len(keys)), chunks + 1
    for names in _chunks(cells, CHUNK_CELLS):
        await store.commit(Commit(chunks + 1, cells={name: cells[name] for name in names}, before=chunks))
        written, chunks = _report(progress, replayed, written + len(names)), chunks + 1
    if (await store.read([FILLING], READ_TIMEOUT_MS)).rows != (filling,):
        raise StoreUnavailable("the store lost what it was being filled with")
    marks: dict[str, tuple[bytes, int] | None] = {GENERATION: (filling, MAX_TTL_S), FILLING: None, LAST: replayed.last}
    await store.commit(Commit(replayed.applied, marks, before=chunks))


def _report(progress: Progress | None, replayed: Replayed, written: int) -> int:
    if progress is not None:
        progress(replayed.events, written)
    return written


def _cells(population: Population) -> dict[tuple[str, str], bytes]:
    found: dict[tuple[str, str], bytes] = {}
    for key, table in population.tables.items():
        for action in table:
            cell = table.cell(action)
            assert cell is not None
            found[key, action] = cell.tobytes()
    return found


def _may_be_read(key: str, row: Row, newest_s: float) -> bool:
    """Whether an event that comes in time can still find a row alive."""
    return newest_s - updated_s(row) <= keep_s(key)


def _chunks(items: Iterable[T], size: int) -> Iterable[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
