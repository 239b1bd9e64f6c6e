"""The whole state for a follower that joins, in parts between which everybody else has his turn.

Changes go on while it is sent. Every part holds what is so at that moment, and changes are on the same
ordered line, so whoever takes each cell or entry as it was last sent ends up with the state of the last part.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from features.catalogue_log import LiveCatalogue
from features.population import Population
from ranker.workers.line import Line
from ranker.workers.messages import Cell, Cells, Change, Changed, TablesBegin, TablesWhole

CELLS_PER_PART = 2_000
ENTRIES_PER_PART = 500


async def send_catalogue(line: Line, live: LiveCatalogue) -> None:
    """All entries that are there; a change meanwhile is sent by whoever makes it."""
    names = iter(list(live.catalogue))
    while part := list(islice(names, ENTRIES_PER_PART)):
        found = ((action, live.catalogue.get(action)) for action in part)
        changes: list[Change] = [
            (live.last_id, action, msgspec.json.encode(spec)) for action, spec in found if spec is not None
        ]
        line.tell(Changed(live.changed - 1, changes))
        await line.drained()
    line.tell(Changed(live.changed - 1, []))


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
