"""Which action was useful in this context before: by surface, trigger, entities at hand and the app's fields."""

from __future__ import annotations

import numpy as np

from features.cells import ACCEPTED, OFFERED
from features.definitions.family import Columns, ratio
from features.known import Moment
from features.situation import ACTION_FAMILIES, CONTEXT_FAMILIES, TOKEN_FAMILIES
from features.situation_cells import TABLES, places

SHARE_WEIGHT = 2.0


class TableShares:
    """Per table: the action's share of the useful outcomes (pulled to an even one), and how many there were.

    Args:
        name: name of the family.
        families: neighbouring table families of features.situation_cells.
    """

    def __init__(self, name: str, families: tuple[str, ...]) -> None:
        self.name = name
        self.families = families
        self.columns = tuple(f"{family}_{what}" for family in families for what in ("share", "support"))
        tables = places(families)
        self._mine = slice(2 * tables.start, 2 * tables.stop)

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]; a share is log, NaN in a context never seen."""
        return moment.once(_shares)[self._mine].T


class ContextRates:
    """Per context table: the share of the times the action was offered that it was accepted."""

    name = "context_rate"
    columns = tuple(f"{family}_accept_rate" for family in CONTEXT_FAMILIES)

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]."""
        cells = moment.tables.cells[_CONTEXTS]
        return ratio(cells[:, :, ACCEPTED], cells[:, :, OFFERED], 0.1, 5.0).T


def _shares(moment: Moment) -> Columns:
    """Shares and supports of all tables in turn: [2 · tables, candidates]."""
    rows = len(moment.actions)
    totals = moment.tables.useful_totals[:, None]
    shares = np.log(ratio(moment.tables.useful, totals, 1.0 / max(rows, 1), SHARE_WEIGHT))
    shares[totals[:, 0] <= 0.0] = np.nan
    columns = np.empty((2 * len(TABLES), rows))
    columns[0::2] = shares
    columns[1::2] = np.log1p(totals)
    return columns


_CONTEXTS = places(CONTEXT_FAMILIES)

CONTEXT_SHARES = TableShares("context", CONTEXT_FAMILIES)
TRANSITIONS = TableShares("transition", ACTION_FAMILIES)
PATHS = TableShares("path", TOKEN_FAMILIES)
