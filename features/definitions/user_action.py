"""How this user and this action got on: counts, rates, and how long ago."""

from __future__ import annotations

import math

import numpy as np

from features.cells import ACCEPTED, LAST_DISMISSED, LAST_OFFERED, SELF
from features.definitions.family import Columns, age_hours
from features.known import Moment
from features.priors import useful
from features.rated_cells import USER


class UserAction:
    """The user's own outcomes with the action; zero counts for a user never seen."""

    name = "user"
    columns = (
        "user_offered",
        "user_seen",
        "user_accepted",
        "user_completed",
        "user_dismissed",
        "user_self",
        "user_useful_share",
        "user_accept_rate",
        "user_useful_hour",
        "user_useful_week",
        "user_hours_since_offered",
        "user_hours_since_useful",
        "user_hours_since_dismissed",
        "user_useful_total",
    )

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]; counts as log(1 + n), times as log(1 + hours)."""
        rated = moment.rated
        counts = rated.counts[:, USER]
        total = _useful_total(moment)
        columns = np.empty((len(self.columns), len(moment.actions)))
        columns[0:6] = rated.logs[:, USER]
        np.divide(counts[ACCEPTED] + counts[SELF], total + 1.0, out=columns[6])
        columns[7] = rated.accept_rates[USER]
        columns[8:10] = rated.recent_logs[:, USER]
        columns[10:13] = age_hours(moment.now_s, counts[LAST_OFFERED : LAST_DISMISSED + 1])
        columns[13] = math.log1p(total)
        return columns.T


def _useful_total(moment: Moment) -> float:
    user = moment.known.user
    return float(useful(user.counters.totals())) if user is not None else 0.0
