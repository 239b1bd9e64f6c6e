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

PARENT_WEIGHT = 2.0

Shares = NDArray[np.float64]


def useful(cells: Cells) -> Shares:
    """Useful outcomes [rows]: accepted offers and the user's own doing."""
    return cells[..., ACCEPTED] + cells[..., SELF]


def back_off(moment: Moment, chain: Sequence[str] = PRIOR_CHAIN, parent_weight: float = PARENT_WEIGHT) -> Shares:
    """The prior [candidates] in (0, 1) after the whole chain."""
    everything = useful(moment.population(EVERYTHING))
    size = max(len(moment.actions), 1)
    share = (everything + 1.0) / (float(useful(moment.total(EVERYTHING))) + size)
    for family in chain:
        total = float(useful(moment.total(family)))
        if total > 0.0:
            share = (useful(moment.population(family)) + parent_weight * share) / (total + parent_weight)
    return np.asarray(share, np.float64)


def support(moment: Moment, family: str) -> float:
    """Useful outcomes seen in the moment's context of a family: 0 means never seen."""
    return float(useful(moment.total(family)))
