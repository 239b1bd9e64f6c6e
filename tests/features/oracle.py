"""What a store must hold: everything of a log applied in memory, one event after the other."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from features.batch import unpack_row
from features.log import read_log
from features.rows import User
from features.state import Row, RowSet, State
from features.store import FeatureStore


def end_of(logdir: Path) -> int:
    """Number of a log's events."""
    return sum(1 for _ in read_log(logdir))


def replayed(logdir: Path) -> tuple[State, RowSet]:
    """The ten-line oracle."""
    state, rowset = State(), RowSet()
    for offset, event in read_log(logdir):
        state.apply(offset, event, rowset)
        state.population.seal(offset + 1)
    return state, rowset


def comparable(row: Row) -> object:
    """A row without the order of what has none."""
    if isinstance(row, User):
        names, cells = row.counters.to_bytes()
        by_action = {name: cells[112 * place : 112 * (place + 1)] for place, name in enumerate(names)}
        row.row.actions, row.row.cells = [], b""
        return row.row, by_action
    return row


async def assert_holds_the_log(store: FeatureStore, logdir: Path, others: Collection[str] = ()) -> None:
    """Key by key.

    Args:
        others: keys of rows that the store has; those that the log does not give fail.
    """
    state, rowset = replayed(logdir)
    expected = {
        (table, action): cells.values[slot].tobytes()
        for table, cells in state.population.tables.items()
        for action, slot in cells.slots.items()
    }
    assert await store.population() == expected
    keys = sorted({key for key in {*rowset.rows, *others} if key[0] in "usri" and key[1] == ":"})
    snapshot = await store.read(keys, 10_000.0)
    assert snapshot.applied == end_of(logdir)
    found = zip(keys, snapshot.rows, strict=True)
    held = {key: comparable(unpack_row(key, packed)) for key, packed in found if packed is not None}
    assert held == {key: comparable(row) for key, row in rowset.rows.items()}
