"""Population tables: outcomes by action in each context, for everyone together; local to the process.

A context is a table key (see features/situation.py). Tables are few enough to hold; the one that moved
longest ago makes room. A request reads them as of the offset that its personal rows reflect, while the
applier may already be ahead: the cells as they were before recent batches are kept for that.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from features.cells import ACCEPTED, REFERENCE, SELF, WIDTH, Cells, CounterTable, credit_of
from features.slot_index import SlotIndex

EVERYTHING = "g"
"""Key of the table over all contexts."""

ANY = ""
"""The 'action' whose cell counts the table's rankings (offered) and useful outcomes of any action."""

MAX_TABLES = 50_000
MAX_TABLE_ACTIONS = 2_000
MAX_GLOBAL_ACTIONS = 100_000
RING_BATCHES = 64

CellName = tuple[str, str]
Before = Cells | list[float] | None
"""A cell [WIDTH] as it was; None where there was none."""


@dataclass
class _Batch:
    start: int
    before: dict[CellName, Before] = field(default_factory=dict)


class Population:
    """Counter tables by context, with the recent past of each cell.

    Args:
        max_tables: most tables held.
    """

    def __init__(self, max_tables: int = MAX_TABLES) -> None:
        self.max_tables = max_tables
        self.tables: dict[str, CounterTable] = {}
        self.index = SlotIndex()
        self.offset = 0
        self._by_age: list[tuple[float, str]] = []
        self._open = _Batch(0)
        self._past: deque[_Batch] = deque(maxlen=RING_BATCHES)

    def credit(self, keys: Iterable[str], kind: str, actions: Sequence[str], time_s: float) -> None:
        """Adds an outcome of each action, and one of ANY, to every table of `keys`."""
        names, add = (*actions, ANY), credit_of(kind)
        for key in keys:
            table = self._table(key)
            live = table.live
            for name in names:
                add(live.get(name) or self._opened(key, table, name), time_s)
        if len(self.tables) > self.max_tables:
            self._make_room()

    def seal(self, offset: int) -> dict[CellName, bytes | None]:
        """Ends a batch: events before `offset` are in. Gives the changed cells, packed; None where one left."""
        tables = self.tables
        changed = {
            (key, action): table.packed(action) if (table := tables.get(key)) is not None else None
            for key, action in self._open.before
        }
        for key, _ in changed:
            table = tables.get(key)
            if table is not None and table.live:
                table.flush()
        self._past.append(self._open)
        self._open = _Batch(offset)
        self.offset = offset
        return changed

    def at(self, offset: int | None = None) -> PopulationView:
        """The tables as of an offset, or as they are. Too long ago gives the oldest state still known."""
        return PopulationView(self, self.offset if offset is None else offset)

    def before(self, offset: int) -> Mapping[CellName, Before]:
        """Cells as they were at an offset, where that differs from now."""
        if offset >= self.offset:
            return {}
        before: dict[CellName, Before] = {}
        for batch in reversed(self._past):
            if batch.start < offset:
                break
            before.update(batch.before)
        return before

    def reaches(self, offset: int) -> bool:
        """Whether `at(offset)` is exact."""
        return offset >= self.offset or any(batch.start == offset for batch in self._past)

    def load(self, cells: Mapping[CellName, bytes], offset: int) -> None:
        """Takes over stored cells as the state at `offset`."""
        self.tables.clear()
        self.index.forget()
        self._by_age.clear()
        self._past.clear()
        for (key, action), packed in sorted(cells.items()):
            table = self.tables.setdefault(key, CounterTable(_limit(key)))
            table.put(action, np.frombuffer(packed, dtype="<f8", count=WIDTH))
        self._by_age = [(_age(table), key) for key, table in self.tables.items() if key != EVERYTHING]
        heapq.heapify(self._by_age)
        self.offset = offset
        self._open = _Batch(offset)

    def follow(self, cells: Mapping[CellName, bytes | None], offset: int) -> None:
        """Takes over what another process sealed at `offset`, as a batch of its own; that one makes room, not this."""
        for gone in (True, False):  # what left made room for what came
            for (key, action), packed in cells.items():
                if (packed is None) == gone:
                    self._put(key, action, packed)
        self._past.append(self._open)
        self._open = _Batch(offset)
        self.offset = offset

    def _put(self, key: str, action: str, packed: bytes | None) -> None:
        table = self.tables.get(key)
        if table is None:
            if packed is None:
                return
            table = self.tables[key] = CounterTable(_limit(key))
        self._open.before[key, action] = table.cell(action)
        table.put(action, None if packed is None else np.frombuffer(packed, dtype="<f8", count=WIDTH))
        if not len(table):
            del self.tables[key]

    def _table(self, key: str) -> CounterTable:
        table = self.tables.get(key)
        if table is None:
            table = self.tables[key] = CounterTable(_limit(key))
            if key == EVERYTHING:
                return table
            heapq.heappush(self._by_age, (0.0, key))
        return table

    def _keep_before(self, key: str, table: CounterTable, action: str) -> None:
        before = self._open.before
        if (key, action) not in before:
            before[key, action] = table.cell(action)
        victim = table.victim(action)
        if victim is not None and (key, victim) not in before:
            before[key, victim] = table.cell(victim)

    def _opened(self, key: str, table: CounterTable, action: str) -> list[float]:
        """A cell to be changed, its state before the batch kept."""
        if action not in table.slots:
            self._keep_before(key, table, action)
            return table.open(action)
        cell = table.open(action)
        self._open.before.setdefault((key, action), cell.copy())
        return cell

    def _make_room(self) -> None:
        while len(self.tables) > self.max_tables:
            recorded, key = heapq.heappop(self._by_age)
            table = self.tables[key]
            age = _age(table)
            if age > recorded:
                heapq.heappush(self._by_age, (age, key))
                continue
            for action in list(table):
                self._keep_before(key, table, action)
            del self.tables[key]


class PopulationView:
    """Read-only tables as of one offset, also while batches are added under it."""

    def __init__(self, population: Population, offset: int) -> None:
        self._population = population
        self._offset = offset
        self._sealed = -1
        self._before: dict[str, dict[str, Before]] = {}

    @property
    def exact(self) -> bool:
        """Whether the tables can still be given as of the offset: the past that is kept is short."""
        return self._population.reaches(self._offset)

    def gather(self, key: str, actions: Sequence[str]) -> Cells:
        """Cells [actions, WIDTH] of a table, zero where there is none."""
        self._refresh()
        cells = self._population.tables.get(key, _EMPTY).gather(actions)
        if key in self._before:
            _restore(self._before[key], actions, cells)
        return cells

    def gather_all(self, keys: Sequence[str], actions: Sequence[str], cells: Cells | None = None) -> Cells:
        """Cells [keys, actions, WIDTH] of several tables, in `cells` where given."""
        self._refresh()
        tables, index = self._tables(keys), self._population.index
        if cells is None:
            cells = np.empty((len(keys), len(actions), WIDTH))
        numbers = index.numbers(actions)
        if numbers is None:
            for table, out in zip(tables, cells, strict=True):
                table.gather(actions, out)
        else:
            found = index.slots.read(keys, tables, actions, numbers, len(index))
            for table, slots, out in zip(tables, found, cells, strict=True):
                table.take(slots, out)
        for key, out in zip(keys, cells, strict=True) if self._before else ():
            if key in self._before:
                _restore(self._before[key], actions, out)
        return cells

    def useful_all(self, keys: Sequence[str], actions: Sequence[str]) -> Cells:
        """Useful outcomes [keys, actions] of several tables."""
        self._refresh()
        numbers = self._population.index.numbers(actions)
        if numbers is None:
            cells = self.gather_all(keys, actions)
            return np.asarray(cells[:, :, ACCEPTED] + cells[:, :, SELF])
        index = self._population.index
        useful: Cells = index.useful.read(keys, self._tables(keys), actions, numbers, len(index))
        for row in [row for row, key in enumerate(keys) if key in self._before] if self._before else ():
            before = self._before[keys[row]]
            for place in [place for place, action in enumerate(actions) if action in before]:
                cell = before[actions[place]]
                useful[row, place] = 0.0 if cell is None else cell[ACCEPTED] + cell[SELF]
        return useful

    def total(self, key: str) -> Cells:
        """The cell [WIDTH] over all actions of a table."""
        total: Cells = self.gather(key, (ANY,))[0]
        return total

    def actions(self, key: str) -> list[str]:
        """Actions with a cell in a table now."""
        return [action for action in self._population.tables.get(key, ()) if action != ANY]

    def _tables(self, keys: Sequence[str]) -> list[CounterTable]:
        return [self._population.tables.get(key, _EMPTY) for key in keys]

    def _refresh(self) -> None:
        if self._sealed == self._population.offset:
            return
        self._before = {}
        for (key, action), cell in self._population.before(self._offset).items():
            self._before.setdefault(key, {})[action] = cell
        self._sealed = self._population.offset


_EMPTY = CounterTable()


def _restore(before: Mapping[str, Before], actions: Sequence[str], cells: Cells) -> None:
    """Puts a table's cells [actions, WIDTH] back to what they were."""
    for row, action in enumerate(actions):
        if action in before:
            cell = before[action]
            cells[row] = 0.0 if cell is None else cell


def _limit(key: str) -> int:
    return MAX_GLOBAL_ACTIONS if key == EVERYTHING else MAX_TABLE_ACTIONS


def _age(table: CounterTable) -> float:
    cell = table.cell(ANY)
    return 0.0 if cell is None else float(cell[REFERENCE])
