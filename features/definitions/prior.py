"""The backed-off prior as a feature: what ranks alone when nothing else is known."""

from __future__ import annotations

import numpy as np

from features.definitions.family import Columns, against_best
from features.known import Moment
from features.priors import prior_of


class Prior:
    """Log of the prior, its gap to the best candidate, and its rank among them."""

    name = "prior"
    columns = ("prior_log", "prior_gap", "prior_rank")

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]."""
        return against_best(np.log(prior_of(moment)))
