"""How an action fares with everybody: counts, rates and what is popular now."""

from __future__ import annotations

import numpy as np

from features.cells import (
    ACCEPTED,
    COMPLETED,
    DISMISSED,
    OFFERED,
    SEEN,
    SELF,
    decayed,
)
from features.definitions.family import Columns, ratio
from features.known import Moment
from features.population import EVERYTHING

PRIOR_RATE = 0.1
PRIOR_WEIGHT = 10.0


class ActionStats:
    """Outcomes of the action over all users and contexts."""

    name = "action"
    columns = (
        "action_offered",
        "action_seen",
        "action_accepted",
        "action_completed",
        "action_dismissed",
        "action_self",
        "action_accept_rate",
        "action_completion_rate",
        "action_dismiss_rate",
        "action_useful_hour",
        "action_useful_week",
        "action_accept_rate_week",
    )

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]; counts as log(1 + n)."""
        cells = moment.population(EVERYTHING)
        recent = decayed(cells, moment.now_s)
        offered = cells[:, OFFERED]
        counts = np.log1p(cells[:, [OFFERED, SEEN, ACCEPTED, COMPLETED, DISMISSED, SELF]])
        rates = [
            ratio(cells[:, ACCEPTED], offered, PRIOR_RATE, PRIOR_WEIGHT),
            ratio(cells[:, COMPLETED], offered, PRIOR_RATE, PRIOR_WEIGHT),
            ratio(cells[:, DISMISSED], offered, PRIOR_RATE, PRIOR_WEIGHT),
            np.log1p(recent[:, 1]),
            np.log1p(recent[:, 3]),
            ratio(recent[:, 3], recent[:, 2], PRIOR_RATE, PRIOR_WEIGHT),
        ]
        return np.column_stack([counts, *rates])
