"""The catalogue as columns, so that rules judge all candidates at once; kept up with the catalogue's version.

A change of one action costs one pass over the names and one new row, not a compilation of 100,000 actions.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.catalogue import ActionSpec, Catalogue
from features.events import Context, to_seconds
from ranker import conditions
from ranker.conditions import Conjunction, Dimension
from ranker.judges import Mask, Refusals, first_after
from ranker.traits import EXPIRES, OFF, WITHDRAWN, traits

Rows = NDArray[np.int64]

ABSENT = 0
"""The row of whatever is not in the catalogue: it is not live and asks for nothing."""

_CODED = (
    "surface",
    "locale",
    "region",
    "permission",
    "app_version",
    "entity",
    "trigger",
    "consent",
    "safety_class",
    "group",
)
_KINDS: dict[str, Any] = {
    "live": np.bool_,
    "off": np.bool_,
    "interrupting": np.bool_,
    "needs_text_check": np.bool_,
    "traits": np.uint16,
    "lot": np.uint64,
    "min_age": np.int16,
    "offers_per_day": np.int16,
    "expires_s": np.float64,
    "cooldown_s": np.float64,
    "max_target_age_s": np.float64,
    **dict.fromkeys(_CODED, np.int32),
}
CONTEXT_DIMENSIONS = ("surface", "locale", "region", "app_version", "permission")
"""Needs that the context alone meets or does not, in the order in which their reasons win."""

_START_ROWS = 16
SLACK_CONDITIONS = 1024


class CompiledCatalogue:
    """A row per action of a catalogue. Call `rows` first: it takes over what has changed.

    Args:
        catalogue: read now, whenever its version has moved.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._asked: Sequence[str] | None = None
        self._found: Rows = np.zeros(0, np.int64)
        self._traits: int | None = None
        self._start_over()

    @property
    def version(self) -> int:
        """Moves whenever rows do."""
        self._follow()
        return self._version

    def __len__(self) -> int:
        """Actions in the catalogue."""
        return len(self.catalogue)

    def rows(self, actions: Sequence[str]) -> Rows:
        """The row of each action; ABSENT for one that is not in the catalogue.

        The last tuple is remembered: the stages of a request ask for the same candidates one after the other.
        """
        self._follow()
        if actions is self._asked:
            return self._found
        found = np.fromiter(map(self._slots.get, actions, repeat(ABSENT)), np.int64, len(actions))
        if isinstance(actions, tuple):
            found.flags.writeable = False
            self._asked, self._found, self._traits = actions, found, None
        return found

    def traits(self, rows: Rows) -> int:
        """The bits of ranker/traits.py that any of the rows has; remembered for the rows that `rows` gave last."""
        if rows is not self._found:
            return int(np.bitwise_or.reduce(self._columns["traits"].take(rows)))
        if self._traits is None:
            self._traits = int(np.bitwise_or.reduce(self._columns["traits"].take(rows)))
        return self._traits

    def all_rows(self) -> Rows:
        """Rows of the whole catalogue, in no order that would be the same in another process."""
        self._follow()
        return np.flatnonzero(self._columns["live"])

    def column(self, name: str, rows: Rows) -> NDArray[Any]:
        """Values [rows] of a column."""
        values: NDArray[Any] = self._columns[name].take(rows)
        return values

    def name(self, row: int) -> str:
        """The action of a row."""
        return self._names[row]

    def spec(self, row: int) -> ActionSpec:
        """The entry of a row."""
        return self._specs[row]

    def names(self, rows: Rows) -> tuple[str, ...]:
        """The action of each row, as the one interned string."""
        return tuple(map(self._names.__getitem__, rows.tolist()))

    def specs(self, rows: Rows) -> tuple[ActionSpec, ...]:
        """The entry of each row."""
        return tuple(map(self._specs.__getitem__, rows.tolist()))

    def holds(self, dimension: str, rows: Rows, value: Any) -> Mask:
        """Whether the condition of each row holds for a context value."""
        return self.dimensions[dimension].holds(self._columns[dimension].take(rows), value)

    def has(self, dimension: str, rows: Rows, value: str) -> Mask:
        """Whether each row's condition of a single-valued dimension is `value`."""
        return np.asarray(self._columns[dimension][rows] == self.dimensions[dimension].find(value), np.bool_)

    def condition(self, dimension: str, row: int) -> Any:
        """The condition of a row: a frozenset of names, a version's bounds, a name, or None."""
        return self.dimensions[dimension].conditions[self._columns[dimension][row]]

    def refuse(self, refusals: Refusals, rows: Rows, context: Context, now_s: float) -> None:
        """Refuses rows [candidates] whose conditions on the context alone do not hold."""
        self.refuse_gone(refusals, rows, now_s)
        values = (context.surface, context.locale, context.region, context.app_version, frozenset(context.permissions))
        failing = self._conjunction.first_failing(rows, values, self._columns)
        if np.count_nonzero(failing):
            for number, dimension in enumerate(CONTEXT_DIMENSIONS, start=1):
                refusals.add(failing == number, dimension)

    def refuse_gone(self, refusals: Refusals, rows: Rows, now_s: float) -> None:
        """Refuses rows [candidates] of what is not in the catalogue, switched off or expired."""
        if self.traits(rows) & (WITHDRAWN | OFF | EXPIRES):
            refusals.add(~self.column("live", rows), "withdrawn")
            refusals.add(self.column("off", rows), "off")
            refusals.add(self.column("expires_s", rows) <= now_s, "expired")

    def next_expiry_s(self, rows: Rows, now_s: float) -> float:
        """When the first of the rows [candidates] expires that has not yet; infinity when none will."""
        return first_after(now_s, self.column("expires_s", rows)) if self.traits(rows) & EXPIRES else math.inf

    def _start_over(self) -> None:
        self._version = -1
        self._slots: dict[str, int] = {}
        self._names = [""]
        self._specs = [_NOTHING]
        self._free: list[int] = []
        self._columns = {name: np.zeros(_START_ROWS, kind) for name, kind in _KINDS.items()}
        self.dimensions = {
            "surface": Dimension(conditions.among),
            "locale": Dimension(conditions.locale_covered),
            "region": Dimension(conditions.among),
            "permission": Dimension(conditions.all_granted),
            "app_version": Dimension(conditions.version_within),
            "entity": Dimension(conditions.any_of),
            "trigger": Dimension(conditions.among),
            "consent": Dimension(lambda consent, given: consent in given),
            "safety_class": Dimension(lambda name, allowed: name in allowed),
            "group": Dimension(lambda _group, _value: True),
        }
        self._conjunction = Conjunction([(name, self.dimensions[name]) for name in CONTEXT_DIMENSIONS])
        self._write(ABSENT, _NO_ROW)

    def _follow(self) -> None:
        if self._version == self.catalogue.version:
            return
        if sum(map(len, self.dimensions.values())) > len(_CODED) * (len(self.catalogue) + SLACK_CONDITIONS):
            self._start_over()
        for action, spec in self.catalogue.items():
            slot = self._slots.get(action)
            if slot is None or self._specs[slot] is not spec:
                self._set(action, spec, slot)
        if len(self._slots) > len(self.catalogue):
            self._remove([action for action in self._slots if action not in self.catalogue])
        self._version = self.catalogue.version
        self._asked, self._found, self._traits = None, np.zeros(0, np.int64), None
        self._conjunction.forget(len(self._columns["live"]))

    def _set(self, action: str, spec: ActionSpec, slot: int | None) -> None:
        action = sys.intern(action)
        if slot is None:
            slot = self._slots[action] = self._new_slot()
        self._names[slot] = action
        self._specs[slot] = spec
        self._write(slot, self._row(action, spec))

    def _new_slot(self) -> int:
        if self._free:
            return self._free.pop()
        slot = len(self._names)
        self._names.append("")
        self._specs.append(_NOTHING)
        if slot == len(self._columns["live"]):
            for name, column in self._columns.items():
                self._columns[name] = np.concatenate([column, np.zeros(slot, column.dtype)])
        return slot

    def _remove(self, actions: Sequence[str]) -> None:
        for action in actions:
            slot = self._slots.pop(action)
            self._names[slot], self._specs[slot] = "", _NOTHING
            self._write(slot, _NO_ROW)
            self._free.append(slot)

    def _write(self, slot: int, values: tuple[Any, ...]) -> None:
        for column, value in zip(self._columns.values(), values, strict=True):
            column[slot] = value

    def _row(self, action: str, spec: ActionSpec) -> tuple[Any, ...]:
        return (
            True,
            spec.off,
            spec.fields.get("interrupting") is True,
            spec.needs_text_check,
            traits(spec),
            lot(action),
            spec.min_age,
            spec.max_offers_per_day,
            to_seconds(spec.expires) if spec.expires is not None else math.inf,
            spec.cooldown_s,
            spec.max_target_age_s,
            *self._codes(spec),
        )

    def _codes(self, spec: ActionSpec) -> list[int]:
        """Numbers of the conditions in the order of `_CODED`."""
        asked = (
            conditions.names(spec.surfaces),
            conditions.names(spec.locales),
            conditions.names(spec.regions),
            conditions.names(spec.permissions),
            conditions.version_bounds(spec.min_app_version, spec.max_app_version),
            conditions.names(spec.entity_types),
            conditions.names(spec.triggers),
            spec.consent,
            None if spec.safety_class == "none" else spec.safety_class,
            spec.exclusive_group,
        )
        return [self.dimensions[name].code(wanted) for name, wanted in zip(_CODED, asked, strict=True)]


def lot(name: str) -> int:
    """A number in [0, 2^64) by name alone, for choices that have to be the same in every process."""
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


_NOTHING = ActionSpec(off=True)
_NO_ROW = tuple(WITHDRAWN if name == "traits" else 0 for name in _KINDS)
