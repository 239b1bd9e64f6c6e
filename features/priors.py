"""Population priors: how likely each action is to be the useful one in this context, when nothing else is known.

p_c(a) = (n_c(a) + m·p_parent(a)) / (n_c + m), along a chain of contexts from everything to the particular:
n_c(a) useful outcomes (accepted or done by the user himself) of action a in context c, n_c their sum over
all actions, m the weight of the parent. The root is smoothed with one uniform outcome per candidate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from features.cells import ACCEPTED, SELF, Cells
from features.known import Moment
from features.population import EVERYTHING
from features.situation import PRIOR_CHAIN
from features.situation_cells import PLACE

PARENT_WEIGHT = 2.0

Shares = NDArray[np.float64]


def useful(cells: Cells) -> Shares:
    """Useful outcomes [rows]: accepted offers and the user's own doing."""
    return cells[..., ACCEPTED] + cells[..., SELF]


def back_off(moment: Moment, chain: Sequence[str] = PRIOR_CHAIN, parent_weight: float = PARENT_WEIGHT) -> Shares:
    """The prior [candidates] in (0, 1) after the whole chain.

    The chain is unrolled into one weighted sum over tables: a table's weight is 1 / (n_c + m) of its own
    and m / (n_c + m) of every context after it.
    """
    size = max(len(moment.actions), 1)
    totals = moment.tables.useful_totals.tolist()
    weights = np.zeros(len(totals))
    left = 1.0
    for place in (PLACE[family] for family in reversed(chain)):
        if totals[place] > 0.0:
            weights[place] = left / (totals[place] + parent_weight)
            left *= parent_weight / (totals[place] + parent_weight)
    root = weights[PLACE[EVERYTHING]] = left / (totals[PLACE[EVERYTHING]] + size)
    # Without BLAS, so that every process gets the same bits.
    prior: Shares = (weights[:, None] * moment.tables.useful).sum(axis=0) + root
    return prior


def prior_of(moment: Moment) -> Shares:
    """`back_off` along the usual chain, computed once per moment; not to be changed."""
    return moment.once(back_off)


def support(moment: Moment, family: str) -> float:
    """Useful outcomes seen in the moment's context of a family: 0 means never seen."""
    return float(moment.tables.useful_totals[PLACE[family]])
