"""Counters of outcomes: one cell per (table, action), a table per user, per context, and one for all.

A cell is 14 float64. Decayed sums refer to the cell's own reference time: an event at time t adds
2^-((ref-t)/half-life) when it is late, or moves the reference forward, so that any order of arrival
gives the same sum up to rounding; the order of offsets makes it the same to the bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from math import exp2
from struct import Struct

import numpy as np
from numpy.typing import NDArray

OFFERED, SEEN, ACCEPTED, COMPLETED, DISMISSED, SELF = range(6)
OFFERED_FAST, USEFUL_FAST, OFFERED_SLOW, USEFUL_SLOW = range(6, 10)
LAST_OFFERED, LAST_USEFUL, LAST_DISMISSED, REFERENCE = range(10, 14)
WIDTH = 14
CELL_BYTES = WIDTH * 8
_CELL = Struct(f"<{WIDTH}d")

FAST_HALF_LIFE_S = 3600.0
SLOW_HALF_LIFE_S = 7 * 86400.0

KINDS: Mapping[str, int] = {
    "offered": OFFERED,
    "seen": SEEN,
    "accepted": ACCEPTED,
    "completed": COMPLETED,
    "dismissed": DISMISSED,
    "self": SELF,
    "undone": ACCEPTED,
}
USEFUL = frozenset({"accepted", "self", "undone"})
"""Kinds that change how often an action was useful."""

_RATES = np.array([-1.0 / FAST_HALF_LIFE_S] * 2 + [-1.0 / SLOW_HALF_LIFE_S] * 2)

Cells = NDArray[np.float64]


class CounterTable:
    """Cells by action, at most `limit` of them: the one that moved longest ago makes room.

    Args:
        limit: most actions held; 0 is no limit.
    """

    __slots__ = ("limit", "live", "names", "revision", "slots", "values", "version")

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.revision = 0
        """Moves whenever an action gets a slot, or loses or changes its own."""
        self.version = 0
        """Moves whenever values do; what is live has not moved them yet."""
        self.live: dict[str, list[float]] = {}  # cells that change again and again; `flush` puts them in place
        self.slots: dict[str, int] = {}
        self.names: list[str] = []
        self.values: Cells = np.zeros((4, WIDTH))  # the last row is never used: it is the cell of whatever has none

    def __len__(self) -> int:
        return len(self.slots)

    def __iter__(self) -> Iterator[str]:
        return iter(self.slots)

    def credit(self, kind: str, actions: Iterable[str], time_s: float) -> None:
        """Adds one outcome of `kind` (a key of KINDS) to each action's cell."""
        add = credit_of(kind)
        for action in actions:
            add(self.live.get(action) or self.open(action), time_s)

    def open(self, action: str) -> list[float]:
        """The action's cell as plain floats, to be changed in place until `flush`; made where there is none."""
        slot = self.slots.get(action)
        if slot is None:
            slot = self._slot(action)
        cell: list[float] = self.values[slot].tolist()
        self.live[action] = cell
        return cell

    def flush(self) -> None:
        """Puts the open cells in place; what reads cells does so first."""
        self.version += 1
        values = self.values.data
        for action, cell in self.live.items():
            _CELL.pack_into(values, self.slots[action] * CELL_BYTES, *cell)
        self.live.clear()

    def victim(self, action: str) -> str | None:
        """The action that would leave if `action` were credited now, None when there is room."""
        if action in self.slots or not self.limit or len(self.slots) < self.limit:
            return None
        return self._stalest()

    def gather(self, actions: Sequence[str], out: Cells | None = None) -> Cells:
        """Cells [actions, WIDTH], zero where there is none; a copy, in `out` where given."""
        return self.take(np.fromiter(map(self.slots.get, actions, repeat(-1)), np.int64, len(actions)), out)

    def take(self, slots: NDArray[np.int64], out: Cells | None = None) -> Cells:
        """Cells [slots, WIDTH], zero for slot -1, which wraps to the last row; a copy, in `out` where given."""
        if self.live:
            self.flush()
        cells: Cells = self.values.take(slots, axis=0, out=out, mode="wrap")
        return cells

    def cell(self, action: str) -> Cells | None:
        """A copy of one cell, None where there is none."""
        if self.live:
            self.flush()
        slot = self.slots.get(action)
        return None if slot is None else self.values[slot].copy()

    def packed(self, action: str) -> bytes | None:
        """One cell as bytes, None where there is none."""
        cell = self.live.get(action)
        if cell is not None:
            return _CELL.pack(*cell)
        slot = self.slots.get(action)
        return None if slot is None else self.values[slot].tobytes()

    def put(self, action: str, cell: Cells | None) -> None:
        """Sets one cell as it is, or removes it."""
        if self.live:
            self.flush()
        if cell is not None:
            slot = self._slot(action)
            self.version += 1
            self.values[slot] = cell
        elif action in self.slots:
            self._remove(action)

    def totals(self) -> Cells:
        """Sum of all cells [WIDTH]; meaningful for the counts only."""
        if self.live:
            self.flush()
        total: Cells = self.values[: len(self.slots)].sum(axis=0)
        return total

    def to_bytes(self) -> tuple[list[str], bytes]:
        """Actions in slot order and their cells, for a packed row."""
        if self.live:
            self.flush()
        return list(self.names), self.values[: len(self.names)].tobytes()

    @classmethod
    def from_bytes(cls, actions: Sequence[str], cells: bytes, limit: int = 0) -> CounterTable:
        """The table that `to_bytes` packed.

        Raises:
            ValueError: the lengths do not fit.
        """
        table = cls(limit)
        table.names = list(actions)
        table.slots = {action: slot for slot, action in enumerate(actions)}
        if len(cells) != len(table.slots) * CELL_BYTES:
            raise ValueError(f"{len(cells)} bytes are not {len(actions)} cells of {CELL_BYTES}")
        table.values = np.zeros((len(table.slots) + 1, WIDTH))
        table.values[:-1] = np.frombuffer(cells, dtype="<f8").reshape(-1, WIDTH)
        return table

    def _slot(self, action: str) -> int:
        slot = self.slots.get(action)
        if slot is not None:
            return slot
        if self.limit and len(self.slots) >= self.limit:
            self._remove(self._stalest())
        slot = len(self.slots)
        if slot == len(self.values) - 1:
            self.values = np.concatenate([self.values, np.zeros((max(4, slot), WIDTH))])
        self.values[slot] = 0.0
        self.revision += 1
        self.version += 1
        action = sys.intern(action)  # so that finding it among many tables compares addresses, not letters
        self.slots[action] = slot
        self.names.append(action)
        return slot

    def _stalest(self) -> str:
        """Ties by name, not by slot: slots differ after a restart. The empty name (a total) never leaves."""
        if self.live:
            self.flush()
        references = self.values[: len(self.names), REFERENCE].copy()
        total = self.slots.get("")
        if total is not None:
            references[total] = np.inf
        return min(self.names[slot] for slot in np.flatnonzero(references == references.min()).tolist())

    def _remove(self, action: str) -> None:
        """The last slot moves into the hole; the order of slots is not part of the value."""
        if self.live:
            self.flush()
        self.revision += 1
        self.version += 1
        hole = self.slots.pop(action)
        moved = self.names.pop()
        if moved != action:
            self.slots[moved], self.names[hole] = hole, moved
            self.values[hole] = self.values[len(self.names)]


def _offer(cell: list[float], time_s: float) -> None:
    """One offer; written out, for a ranking makes some twenty of them."""
    gap_s = time_s - cell[REFERENCE]
    if gap_s > 0.0:
        fast, slow = exp2(-gap_s / FAST_HALF_LIFE_S), exp2(-gap_s / SLOW_HALF_LIFE_S)
        cell[OFFERED_FAST] = cell[OFFERED_FAST] * fast + 1.0
        cell[USEFUL_FAST] *= fast
        cell[OFFERED_SLOW] = cell[OFFERED_SLOW] * slow + 1.0
        cell[USEFUL_SLOW] *= slow
        cell[REFERENCE] = time_s
    else:
        cell[OFFERED_FAST] += exp2(gap_s / FAST_HALF_LIFE_S)
        cell[OFFERED_SLOW] += exp2(gap_s / SLOW_HALF_LIFE_S)
    cell[OFFERED] += 1.0
    if time_s > cell[LAST_OFFERED]:
        cell[LAST_OFFERED] = time_s


def _outcome(kind: str, cell: list[float], time_s: float) -> None:
    """Any other outcome. Plain floats: on 14 of them numpy costs three times as much."""
    fast, slow = _advance(cell, time_s)
    sign = -1.0 if kind == "undone" else 1.0
    column = KINDS[kind]
    cell[column] = max(0.0, cell[column] + sign)
    if kind in USEFUL:
        cell[USEFUL_FAST] = max(0.0, cell[USEFUL_FAST] + sign * fast)
        cell[USEFUL_SLOW] = max(0.0, cell[USEFUL_SLOW] + sign * slow)
        if sign > 0.0:
            cell[LAST_USEFUL] = max(cell[LAST_USEFUL], time_s)
    elif kind == "dismissed":
        cell[LAST_DISMISSED] = max(cell[LAST_DISMISSED], time_s)


_CREDITS: Mapping[str, Callable[[list[float], float], None]] = {
    kind: _offer if kind == "offered" else partial(_outcome, kind) for kind in KINDS
}


def credit_of(kind: str) -> Callable[[list[float], float], None]:
    """Adds one outcome of `kind` (a key of KINDS) at a time to an open cell [WIDTH]."""
    return _CREDITS[kind]


def _advance(cell: list[float], time_s: float) -> tuple[float, float]:
    """Moves the reference to `time_s` if that is later; gives the (fast, slow) weights of an event at `time_s`."""
    gap_s = time_s - cell[REFERENCE]
    fast, slow = exp2(-abs(gap_s) / FAST_HALF_LIFE_S), exp2(-abs(gap_s) / SLOW_HALF_LIFE_S)
    if gap_s <= 0.0:
        return fast, slow
    cell[OFFERED_FAST] *= fast
    cell[USEFUL_FAST] *= fast
    cell[OFFERED_SLOW] *= slow
    cell[USEFUL_SLOW] *= slow
    cell[REFERENCE] = time_s
    return 1.0, 1.0


def decayed(cells: Cells, now_s: float) -> Cells:
    """The decayed columns [rows, 4] as of `now_s`; a reference after now counts as now."""
    gap_s = np.maximum(now_s - cells[:, REFERENCE], 0.0)
    factors: Cells = np.exp2(gap_s[:, None] * _RATES[None, :])
    return cells[:, OFFERED_FAST : USEFUL_SLOW + 1] * factors
