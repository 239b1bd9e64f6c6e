"""Which action was useful in this context before: by surface, trigger, entities at hand and the app's fields."""

from __future__ import annotations

import numpy as np

from features.cells import ACCEPTED, DISMISSED, OFFERED, WIDTH, decayed
from features.definitions.family import Columns, ratio
from features.known import Moment
from features.situation import ACTION_FAMILIES, CONTEXT_FAMILIES, TOKEN_FAMILIES
from features.situation_cells import TABLES, places

SHARE_WEIGHT = 2.0
_OUTCOMES = ("offered", "seen", "accepted", "completed", "dismissed", "accept_rate", "accept_rate_week")


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
    """Per context table: the action's outcomes there, and how often an offer was accepted, ever and lately."""

    name = "context_rate"
    columns = tuple(f"{family}_{what}" for family in CONTEXT_FAMILIES for what in _OUTCOMES)

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]; counts as log(1 + n)."""
        cells = moment.tables.cells[_CONTEXTS]
        tables, rows, _ = cells.shape
        columns = np.empty((tables, len(_OUTCOMES), rows))
        np.log1p(cells[:, :, OFFERED : DISMISSED + 1].transpose(0, 2, 1), out=columns[:, :5])
        columns[:, 5] = ratio(cells[:, :, ACCEPTED], cells[:, :, OFFERED], 0.1, 5.0)
        lately = decayed(cells.reshape(-1, WIDTH), moment.now_s).reshape(tables, rows, 4)
        columns[:, 6] = ratio(lately[:, :, 3], lately[:, :, 2], 0.1, 5.0)
        return columns.reshape(-1, rows).T


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
