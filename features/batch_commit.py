"""From a batch of events to what it changes in a store: nothing is awaited within either step."""

from __future__ import annotations

from collections.abc import Mapping

from features.batch import apply_event, packed_rows
from features.log_source import Batch
from features.population import CellName
from features.state import RowSet, State
from features.store import Commit
from features.store_marks import LAST, last_applied

Cells = Mapping[CellName, bytes | None]


def apply_batch(state: State, batch: Batch, rowset: RowSet) -> Cells:
    """Takes its events in, and seals the tables; the cells that changed."""
    for offset, event in batch.events:
        apply_event(state, offset, event, rowset)
    return state.population.seal(batch.offset)


def commit_of(state: State, batch: Batch, rowset: RowSet, cells: Cells) -> Commit:
    """All that it changed, packed."""
    changed = packed_rows(rowset.changed)
    if batch.events:
        changed[LAST] = last_applied(*batch.events[-1], state.windows)
    return Commit(batch.offset, changed, cells)
