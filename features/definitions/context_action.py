"""Which action was useful in this context before: by surface, trigger, entities at hand and the app's fields."""

from __future__ import annotations

import numpy as np

from features.cells import ACCEPTED, OFFERED
from features.definitions.family import Columns, constant, ratio
from features.known import Moment
from features.priors import useful
from features.situation import ACTION_FAMILIES, CONTEXT_FAMILIES, TOKEN_FAMILIES

SHARE_WEIGHT = 2.0


class TableShares:
    """Per table: the action's share of the useful outcomes (pulled to an even one), and how many there were.

    Args:
        name: name of the family.
        families: table families of features.situation.
    """

    def __init__(self, name: str, families: tuple[str, ...]) -> None:
        self.name = name
        self.families = families
        self.columns = tuple(f"{family}_{what}" for family in families for what in ("share", "support"))

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]; a share is log, NaN in a context never seen."""
        columns = []
        for family in self.families:
            total = float(useful(moment.total(family)))
            columns += [self._share(moment, family, total), constant(np.log1p(total), len(moment.actions))]
        return np.column_stack(columns)

    @staticmethod
    def _share(moment: Moment, family: str, total: float) -> Columns:
        if total <= 0.0:
            return constant(np.nan, len(moment.actions))
        rows = len(moment.actions)
        pulled = ratio(useful(moment.population(family)), constant(total, rows), 1.0 / rows, SHARE_WEIGHT)
        return np.log(pulled)


class ContextRates:
    """Per context table: the share of the times the action was offered that it was accepted."""

    name = "context_rate"
    columns = tuple(f"{family}_accept_rate" for family in CONTEXT_FAMILIES)

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]."""
        cells = [moment.population(family) for family in CONTEXT_FAMILIES]
        return np.column_stack([ratio(table[:, ACCEPTED], table[:, OFFERED], 0.1, 5.0) for table in cells])


CONTEXT_SHARES = TableShares("context", CONTEXT_FAMILIES)
TRANSITIONS = TableShares("transition", ACTION_FAMILIES)
PATHS = TableShares("path", TOKEN_FAMILIES)
