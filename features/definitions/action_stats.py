"""How an action fares with everybody: counts, rates and what is popular now."""

from __future__ import annotations

import numpy as np

from features.cells import COMPLETED, DISMISSED, OFFERED
from features.definitions.family import Columns, ratio
from features.known import Moment
from features.rated_cells import ALL, PRIOR_RATE

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
        rated = moment.rated
        counts = rated.counts[:, ALL]
        columns = np.empty((len(self.columns), len(moment.actions)))
        columns[0:6] = rated.logs[:, ALL]
        columns[6] = rated.accept_rates[ALL]
        columns[7:9] = ratio(counts[COMPLETED : DISMISSED + 1], counts[OFFERED], PRIOR_RATE, PRIOR_WEIGHT)
        columns[9:11] = rated.recent_logs[:, ALL]
        columns[11] = rated.accept_rates_week[ALL]
        return columns.T
