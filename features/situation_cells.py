"""The population tables of one situation for all candidates, gathered at once: families compute on whole blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from features.cells import ACCEPTED, SELF, Cells
from features.population import ANY, EVERYTHING, PopulationView
from features.situation import FAMILIES

TABLES = (EVERYTHING, *FAMILIES)
"""The families in the order of the blocks' first axis."""

PLACE = {family: place for place, family in enumerate(TABLES)}

Shares = NDArray[np.float64]


class SituationCells:
    """Cells by table and candidate.

    Args:
        keys: table keys by family (features.situation.situation_keys).
    """

    def __init__(self, population: PopulationView, keys: Mapping[str, str], actions: Sequence[str]) -> None:
        block = population.gather_all([keys[family] for family in TABLES], (*actions, ANY))
        self._block = block
        self.cells: Cells = block[:, :-1]

    def of(self, family: str) -> Cells:
        """Cells [candidates, WIDTH] of one table."""
        cells: Cells = self.cells[PLACE[family]]
        return cells

    def total(self, family: str) -> Cells:
        """The cell [WIDTH] over all actions of one table."""
        cell: Cells = self._block[PLACE[family], -1]
        return cell

    @cached_property
    def useful(self) -> Shares:
        """Useful outcomes [tables, candidates]: accepted offers and the user's own doing."""
        return self._useful[:, :-1]

    @cached_property
    def useful_totals(self) -> Shares:
        """Useful outcomes [tables] over all actions."""
        return self._useful[:, -1]

    @cached_property
    def _useful(self) -> Shares:
        useful: Shares = self._block[:, :, ACCEPTED] + self._block[:, :, SELF]
        return useful


def places(families: Sequence[str]) -> slice:
    """Where neighbouring families lie on the first axis."""
    first = PLACE[families[0]]
    assert tuple(families) == TABLES[first : first + len(families)], "families in the order of TABLES"
    return slice(first, first + len(families))
