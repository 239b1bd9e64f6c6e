"""The tables of one situation for all candidates, gathered at once: families compute on whole blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from features.cells import ACCEPTED, SELF, WIDTH, Cells
from features.population import ANY, EVERYTHING, PopulationView
from features.rows import User
from features.situation import CONTEXT_FAMILIES, FAMILIES

TABLES = (EVERYTHING, *FAMILIES)
"""The families in the order of the blocks' first axis, after the user's own counters."""

PLACE = {family: place for place, family in enumerate(TABLES)}

Shares = NDArray[np.float64]


class SituationCells:
    """Cells by table and candidate where offers are counted, and useful outcomes in all tables.

    Args:
        keys: table keys by family (features.situation.situation_keys).
        user: None counts as one who never did anything.
    """

    def __init__(
        self, population: PopulationView, keys: Mapping[str, str], actions: Sequence[str], user: User | None
    ) -> None:
        names = (*actions, ANY)
        block = np.empty((1 + len(_RATED), len(names), WIDTH))
        population.gather_all([keys[family] for family in _RATED], names, block[1:])
        if user is None:
            block[0] = 0.0
        else:
            user.counters.gather(names, block[0])
        self._useful = np.empty((len(TABLES), len(names)))
        np.add(block[1:, :, ACCEPTED], block[1:, :, SELF], out=self._useful[: len(_RATED)])
        self._useful[len(_RATED) :] = population.useful_all([keys[family] for family in _PAST], names)
        self.personal: Cells = block[0, :-1]
        self.rated: Cells = block[:, :-1]
        """[tables, candidates, WIDTH] in the order of features.rated_cells."""

    @property
    def useful(self) -> Shares:
        """Useful outcomes [tables, candidates]: accepted offers and the user's own doing."""
        return self._useful[:, :-1]

    @property
    def useful_totals(self) -> Shares:
        """Useful outcomes [tables] over all actions."""
        return self._useful[:, -1]


_RATED, _PAST = TABLES[: 1 + len(CONTEXT_FAMILIES)], TABLES[1 + len(CONTEXT_FAMILIES) :]


def places(families: Sequence[str]) -> slice:
    """Where neighbouring families lie on the first axis."""
    first = PLACE[families[0]]
    assert tuple(families) == TABLES[first : first + len(families)], "families in the order of TABLES"
    return slice(first, first + len(families))
