"""What actions declare, judged once per distinct declaration and context instead of once per candidate.

Many actions share few declarations ("after a message", "about an image"). Each distinct one has a number;
the verdicts on them in one context are a table that candidates index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from features.catalogue import ActionSpec

VERDICTS = 5
MAX_SPECS = 200_000
MAX_JUDGED = 200_000
MAX_CONTEXTS = 1024
_UNJUDGED = -1.0

Verdicts = NDArray[np.float64]


class Facts(NamedTuple):
    """What declarations are held against; `types` are those of the context's entities, in order."""

    surface: str | None
    locale: str
    trigger: str | None
    types: tuple[str, ...]


@dataclass(frozen=True)
class Declaration:
    """The conditions of an action that are features."""

    surfaces: frozenset[str]
    locales: frozenset[str]
    triggers: frozenset[str]
    types: frozenset[str]

    def judge(self, facts: Facts) -> tuple[float, ...]:
        """Surface, locale and trigger among those named; entities of its types; whether it is about one."""
        return (
            float(facts.surface in self.surfaces) if self.surfaces else math.nan,
            float(self._covers(facts.locale)) if self.locales else math.nan,
            float(facts.trigger in self.triggers) if self.triggers else math.nan,
            float(sum(kind in self.types for kind in facts.types)) if self.types else math.nan,
            float(bool(self.types)),
        )

    def _covers(self, locale: str) -> bool:
        return any(locale == name or locale.startswith(name + "-") for name in self.locales)


class DeclaredMatches:
    """Remembers verdicts; forgets all of them when there are too many."""

    def __init__(self) -> None:
        self._forget()

    def verdicts(self, specs: Sequence[ActionSpec | None], facts: Facts) -> Verdicts:
        """[VERDICTS, candidates], NaN where nothing is declared."""
        if len(self._specs) > MAX_SPECS:
            self._forget()
        codes = self._codes(specs)
        table = self._table(facts)
        found = table.take(codes, axis=1)
        unjudged = found[-1] == _UNJUDGED
        if np.count_nonzero(unjudged):
            for code in set(codes[unjudged].tolist()):
                table[:, code] = self._declarations[code].judge(facts)
            found = table.take(codes, axis=1)
        return found

    def _codes(self, specs: Sequence[ActionSpec | None]) -> NDArray[np.int64]:
        """The number of each spec's declaration; nearly always all are known already."""
        known = self._by_identity
        try:
            return np.fromiter(map(known.__getitem__, map(id, specs)), np.int64, len(specs))
        except KeyError:
            return np.array([self._code(spec) for spec in specs], np.int64)

    def _code(self, spec: ActionSpec | None) -> int:
        code = self._by_identity.get(id(spec))
        if code is None:
            assert spec is not None, "None is known from the start"
            # The spec is held, so nothing else can come to have its identity.
            self._specs.append(spec)
            code = self._by_identity[id(spec)] = self._number(_declaration(spec))
        return code

    def _number(self, declaration: Declaration) -> int:
        number = self._numbers.setdefault(declaration, len(self._declarations))
        if number == len(self._declarations):
            self._declarations.append(declaration)
        return number

    def _table(self, facts: Facts) -> Verdicts:
        size = len(self._declarations)
        table = self._judged.get(facts)
        if table is None or table.shape[1] < size:
            if len(self._judged) >= min(MAX_CONTEXTS, max(8, MAX_JUDGED // size)):
                self._judged.clear()
            table = self._judged[facts] = np.full((VERDICTS, size), _UNJUDGED)
        return table

    def _forget(self) -> None:
        nothing = _declaration(ActionSpec())
        self._specs: list[ActionSpec] = []
        self._by_identity = {id(None): 0}
        self._declarations = [nothing]
        self._numbers = {nothing: 0}
        self._judged: dict[Facts, Verdicts] = {}


def _declaration(spec: ActionSpec) -> Declaration:
    locales = frozenset(name.lower() for name in spec.locales)
    return Declaration(frozenset(spec.surfaces), locales, frozenset(spec.triggers), frozenset(spec.entity_types))
