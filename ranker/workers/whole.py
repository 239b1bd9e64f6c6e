"""The whole state for a follower that joins, in parts between which everybody else has his turn.

Changes go on while it is sent. Every part holds what is so at that moment, and changes are on the same
ordered line, so whoever takes each cell or entry as it was last sent ends up with the state of the last part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from features.catalogue_log import LiveCatalogue
from features.population import Population
from ranker.workers.line import Line
from ranker.workers.messages import Cell, Cells, Change, Changed, TablesBegin, TablesWhole

CELLS_PER_PART = 2_000
ENTRIES_PER_PART, BYTES_PER_PART = 500, 4 << 20


async def send_catalogue(line: Line, live: LiveCatalogue) -> None:
    """All entries that are there; a change meanwhile is sent by whoever makes it."""
    found = ((action, live.catalogue.get(action)) for action in list(live.catalogue))
    for part in parts((live.last_id, action, msgspec.json.encode(spec)) for action, spec in found if spec is not None):
        line.tell(Changed(live.changed - 1, part))
        await line.drained()
    line.tell(Changed(live.changed - 1, []))


def parts(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Changes in order, as many together as go into one message; each is read when its part is made."""
    part, size = list[Change](), 0
    for change in changes:
        part.append(change)
        size += len(change[2] or b"")
        if len(part) >= ENTRIES_PER_PART or size >= BYTES_PER_PART:
            yield part
            part, size = [], 0
    if part:
        yield part


async def send_tables(line: Line, population: Population, applied: int, generation: str) -> None:
    """All cells; what is sealed meanwhile is sent by the applier's listener."""
    line.tell(TablesBegin(generation, applied))
    cells: list[Cell] = []
    for key in list(population.tables):
        for cell in _cells(population, key):
            cells.append(cell)
            if len(cells) >= CELLS_PER_PART:
                line.tell(Cells(cells))
                cells = []
                await line.drained()
    line.tell(Cells(cells))
    line.tell(TablesWhole(population.offset))


def _cells(population: Population, key: str) -> Iterator[Cell]:
    """Of one table, each read when it is asked for: in a pause between two of them they may change."""
    for action in list(population.tables.get(key, ())):
        table = population.tables.get(key)
        packed = None if table is None else table.packed(action)
        if packed is not None:
            yield key, action, packed
