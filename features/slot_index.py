"""What requests ask of population tables, remembered by number instead of looked up by name.

Requests ask the same few tables for the same few actions again and again. Each action has a number here; what
a table said about it is an array that numbers index, valid as long as the table's stamp stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.cells import ACCEPTED, SELF, CounterTable

MAX_NUMBERS = 4096
MAX_REMEMBERED = 1_000_000
"""Most values that one kind of rows holds; with more actions it remembers fewer tables."""

Numbers = NDArray[np.int64]
Values = NDArray[Any]


class Rows:
    """One value per table and action, asked of the table when it is not known.

    Args:
        unknown: no table says so; its type is the values'.
        stamp: moves whenever the table may answer otherwise.
        ask: the values of actions.
    """

    def __init__(
        self,
        unknown: np.generic,
        stamp: Callable[[CounterTable], int],
        ask: Callable[[CounterTable, Sequence[str]], Values],
    ) -> None:
        self._unknown, self._stamp, self._ask = unknown, stamp, ask
        self._rows: dict[str, tuple[CounterTable, int, Values]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def read(
        self, keys: Sequence[str], tables: Sequence[CounterTable], actions: Sequence[str], numbers: Numbers, size: int
    ) -> Values:
        """Values [tables, actions].

        Args:
            keys: of the tables.
            numbers: of the actions.
            size: how many numbers there are.
        """
        found = np.empty((len(keys), len(actions)), self._unknown.dtype)
        rows = [self._row(key, table, size) for key, table in zip(keys, tables, strict=True)]
        for row, values in zip(rows, found, strict=True):
            row.take(numbers, out=values, mode="wrap")
        unknown = found == self._unknown
        if np.count_nonzero(unknown):
            for place in np.flatnonzero(unknown.any(axis=1)).tolist():
                found[place] = rows[place][numbers] = self._ask(tables[place], actions)
        return found

    def forget(self) -> None:
        """Everything is unknown again."""
        self._rows.clear()

    def _row(self, key: str, table: CounterTable, size: int) -> Values:
        stamp, known = self._stamp(table), self._rows.get(key)
        if known is not None and known[0] is table and known[1] == stamp and len(known[2]) >= size:
            return known[2]
        room = 1 << max(size - 1, 63).bit_length()  # for a few numbers more
        self._rows.pop(key, None)
        while len(self._rows) >= max(1, MAX_REMEMBERED // room):
            del self._rows[next(iter(self._rows))]
        row = np.full(room, self._unknown)
        self._rows[key] = table, stamp, row
        return row


class SlotIndex:
    """Where actions lie in tables, and how often they were useful there."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._asked: Sequence[str] = ()
        self._found: Numbers = np.zeros(0, np.int64)
        self.slots = Rows(np.int64(-2), _slots_stamp, _slots)
        """Slots, -1 where a table has no cell of an action."""
        self.useful = Rows(np.float64(-1.0), _values_stamp, _useful)
        """Useful outcomes: accepted offers and the user's own doing."""

    def __len__(self) -> int:
        """How many actions have a number."""
        return len(self._numbers)

    def numbers(self, actions: Sequence[str]) -> Numbers | None:
        """The number of each action; None when there are too many, and then all is forgotten."""
        if actions is self._asked:
            return self._found
        try:
            return self._remembered(actions)
        except KeyError:
            for action in actions:
                self._numbers.setdefault(action, len(self._numbers))
        if len(self._numbers) > MAX_NUMBERS:
            self.forget()
            return None
        return self._remembered(actions)

    def forget(self) -> None:
        """No action has a number."""
        self._numbers.clear()
        self._asked = ()
        self._found = np.zeros(0, np.int64)
        self.slots.forget()
        self.useful.forget()

    def _remembered(self, actions: Sequence[str]) -> Numbers:
        """A tuple's numbers stay for the next who asks for the same; what raises changes nothing."""
        numbers = np.fromiter(map(self._numbers.__getitem__, actions), np.int64, len(actions))
        if isinstance(actions, tuple):
            self._asked, self._found = actions, numbers
        return numbers


def _slots_stamp(table: CounterTable) -> int:
    return table.revision


def _slots(table: CounterTable, actions: Sequence[str]) -> Values:
    return np.fromiter(map(table.slots.get, actions, repeat(-1)), np.int64, len(actions))


def _values_stamp(table: CounterTable) -> int:
    if table.live:
        table.flush()
    return table.version


def _useful(table: CounterTable, actions: Sequence[str]) -> Values:
    cells = table.gather(actions)
    useful: Values = cells[:, ACCEPTED] + cells[:, SELF]
    return useful
