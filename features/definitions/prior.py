"""The backed-off prior as a feature: what ranks alone when nothing else is known."""

from __future__ import annotations

import numpy as np

from features.definitions.family import Columns, dense_rank
from features.known import Moment
from features.priors import back_off


class Prior:
    """Log of the prior, its gap to the best candidate, and its rank among them."""

    name = "prior"
    columns = ("prior_log", "prior_gap", "prior_rank")

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]."""
        log_prior = np.log(back_off(moment))
        return np.column_stack([log_prior, log_prior - log_prior.max(), dense_rank(log_prior)])
