"""Conditions of actions, judged once per distinct condition and context value instead of once per candidate.

Many actions share few conditions ("on the home surface", "in English"). Each distinct condition has a small
number; the verdicts on them for one context value are an array that candidates index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranker.judges import Mask

NO_CONDITION = 0
MAX_CACHED_VERDICTS = 4_000_000
MIN_CACHED_VALUES, MAX_CACHED_VALUES = 8, 1024

Codes = NDArray[np.int32]
Rule = Callable[[Any, Any], bool]

_VERSION = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})*")
_UNKNOWN, _HOLDS = -1, 1


class Dimension:
    """The distinct conditions of one kind; number 0 is no condition and always holds.

    Args:
        rule: whether a condition holds for a context value (which may be None: unknown).
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.conditions: list[Any] = [None]
        self._codes: dict[Hashable, int] = {}
        self._verdicts: dict[Hashable, NDArray[np.int8]] = {}

    def __len__(self) -> int:
        return len(self.conditions)

    def code(self, condition: Hashable) -> int:
        """The condition's number; an empty one asks for nothing."""
        if not condition:
            return NO_CONDITION
        code = self._codes.get(condition)
        if code is None:
            code = self._codes[condition] = len(self.conditions)
            self.conditions.append(condition)
        return code

    def find(self, condition: Hashable) -> int:
        """The condition's number, -1 when no action has it."""
        return self._codes.get(condition, -1)

    def holds(self, codes: Codes, value: Hashable) -> Mask:
        """Whether each numbered condition [rows] holds for a context value."""
        table = self._table(value)
        verdicts = table.take(codes)
        unjudged = verdicts == _UNKNOWN
        if np.count_nonzero(unjudged):
            for code in set(codes[unjudged].tolist()):
                table[code] = self._rule(self.conditions[code], value)
            verdicts = table.take(codes)
        held: Mask = verdicts == _HOLDS
        return held

    def _table(self, value: Hashable) -> NDArray[np.int8]:
        table = self._verdicts.get(value)
        if table is not None and len(table) == len(self.conditions):
            return table
        room = min(MAX_CACHED_VALUES, max(MIN_CACHED_VALUES, MAX_CACHED_VERDICTS // len(self.conditions)))
        if len(self._verdicts) >= room:
            self._verdicts.clear()
        table = self._verdicts[value] = np.full(len(self.conditions), _UNKNOWN, np.int8)
        table[NO_CONDITION] = True
        return table


class Conjunction:
    """Which of several dimensions a row fails first, remembered by context values until the rows change.

    Args:
        dimensions: by the name of their column of codes, in the order in which their failure counts.
    """

    def __init__(self, dimensions: Sequence[tuple[str, Dimension]]) -> None:
        self._dimensions = tuple(dimensions)
        self._size = 0
        self._failing: dict[Hashable, NDArray[np.int8]] = {}

    def __len__(self) -> int:
        """Contexts that are remembered."""
        return len(self._failing)

    def forget(self, size: int) -> None:
        """What was remembered is of other rows; there are `size` now."""
        self._size = size
        self._failing.clear()

    def first_failing(
        self, rows: NDArray[np.int64], values: tuple[Hashable, ...], columns: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.int8]:
        """The number of the dimension, from 1, that each row fails first; 0 where all hold.

        Args:
            values: of the context, by dimension.
            columns: codes by the dimension's name and row.
        """
        table = self._table(values)
        failing = table.take(rows)
        unjudged = failing == _UNKNOWN
        if np.count_nonzero(unjudged):
            new = rows[unjudged]
            table[new] = self._judged(new, values, columns)
            failing = table.take(rows)
        return failing

    def _judged(
        self, rows: NDArray[np.int64], values: tuple[Hashable, ...], columns: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.int8]:
        failing = np.zeros(len(rows), np.int8)
        for number, ((name, dimension), value) in enumerate(zip(self._dimensions, values, strict=True), start=1):
            failing[(failing == 0) & ~dimension.holds(columns[name].take(rows), value)] = number
        return failing

    def _table(self, values: tuple[Hashable, ...]) -> NDArray[np.int8]:
        table = self._failing.get(values)
        if table is None:
            room = min(MAX_CACHED_VALUES, max(MIN_CACHED_VALUES, MAX_CACHED_VERDICTS // max(self._size, 1)))
            if len(self._failing) >= room:
                self._failing.clear()
            table = self._failing[values] = np.full(self._size, _UNKNOWN, np.int8)
        return table


def among(condition: frozenset[str], value: str | None) -> bool:
    """The value is one of those asked for; an unknown value is none of them."""
    return value in condition


def any_of(condition: frozenset[str], values: frozenset[str]) -> bool:
    """At least one of the values is asked for."""
    return not condition.isdisjoint(values)


def all_granted(condition: frozenset[str], granted: frozenset[str]) -> bool:
    """All that is asked for is granted."""
    return condition <= granted


def plain_locale(locale: str) -> str:
    """`en_GB` and `EN-gb` are the same locale."""
    return locale.replace("_", "-").lower()


def locale_covered(condition: frozenset[str], locale: str | None) -> bool:
    """`en` covers `en` and `en-GB`, not `eng`; both sides in any case. An unknown locale is not covered."""
    if locale is None:
        return False
    plain = plain_locale(locale)
    return any(plain == wanted or plain.startswith(wanted + "-") for wanted in map(plain_locale, condition))


def parse_version(version: str | None) -> tuple[int, ...] | None:
    """Numbers of `1.10.2` without trailing zeros (1.0 is 1); None for anything else."""
    if version is None or not _VERSION.fullmatch(version):
        return None
    numbers = [int(part) for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def version_within(condition: tuple[str | None, str | None], version: str | None) -> bool:
    """The version lies within [least, most], number by number. One that cannot be read, on either side, does not."""
    number = parse_version(version)
    if number is None:
        return False
    least, most = (None if bound is None else parse_version(bound) for bound in condition)
    unreadable = any(bound is not None and parse_version(bound) is None for bound in condition)
    return not unreadable and (least is None or least <= number) and (most is None or number <= most)


def version_bounds(least: str | None, most: str | None) -> tuple[str | None, str | None] | None:
    """A condition on the app's version; None when there is neither bound."""
    return None if least is None and most is None else (least, most)


def names(values: Sequence[str]) -> frozenset[str]:
    """A condition that asks for one of the values, or all of them."""
    return frozenset(values)
