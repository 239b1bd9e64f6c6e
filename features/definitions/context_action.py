"""Which action was useful in this context before: by surface, trigger, entities at hand and the app's fields."""

from __future__ import annotations

import numpy as np

from features.cells import DISMISSED, OFFERED
from features.definitions.family import Columns, ratio
from features.known import Moment
from features.rated_cells import CONTEXTS
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
        rated, rows = moment.rated, len(moment.actions)
        columns = np.empty((len(CONTEXT_FAMILIES), len(_OUTCOMES), rows))
        columns[:, :5] = rated.logs[OFFERED : DISMISSED + 1, CONTEXTS].swapaxes(0, 1)
        columns[:, 5] = rated.accept_rates[CONTEXTS]
        columns[:, 6] = rated.accept_rates_week[CONTEXTS]
        return columns.reshape(-1, rows).T


def _shares(moment: Moment) -> Columns:
    """Shares and supports of all tables in turn: [2 · tables, candidates]."""
    rows = len(moment.actions)
    totals = moment.tables.useful_totals[:, None]
    seen = np.where(totals > 0.0, totals, np.nan)
    columns = np.empty((2 * len(TABLES), rows))
    np.log(ratio(moment.tables.useful, seen, 1.0 / max(rows, 1), SHARE_WEIGHT), out=columns[0::2])
    columns[1::2] = np.log1p(totals)
    return columns


CONTEXT_SHARES = TableShares("context", CONTEXT_FAMILIES)
TRANSITIONS = TableShares("transition", ACTION_FAMILIES)
PATHS = TableShares("path", TOKEN_FAMILIES)
