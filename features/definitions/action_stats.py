"""How an action fares with everybody: counts, rates and what is popular now."""

from __future__ import annotations

import numpy as np

from features.cells import ACCEPTED, DISMISSED, OFFERED, SELF, decayed
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
        recent = decayed(cells, moment.now_s).T
        counts = cells.T
        columns = np.empty((len(self.columns), len(cells)))
        np.log1p(counts[OFFERED : SELF + 1], out=columns[0:6])
        columns[6:9] = ratio(counts[ACCEPTED : DISMISSED + 1], counts[OFFERED], PRIOR_RATE, PRIOR_WEIGHT)
        np.log1p(recent[1::2], out=columns[9:11])
        columns[11] = ratio(recent[3], recent[2], PRIOR_RATE, PRIOR_WEIGHT)
        return columns.T
