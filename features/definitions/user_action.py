"""How this user and this action got on: counts, rates, and how long ago."""

from __future__ import annotations

import numpy as np

from features.cells import (
    ACCEPTED,
    COMPLETED,
    DISMISSED,
    LAST_DISMISSED,
    LAST_OFFERED,
    LAST_USEFUL,
    OFFERED,
    SELF,
    decayed,
)
from features.definitions.family import Columns, age_hours, constant, ratio
from features.known import Moment
from features.priors import useful


class UserAction:
    """The user's own outcomes with the action; zero counts for a user never seen."""

    name = "user"
    columns = (
        "user_offered",
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
        cells = moment.personal
        recent = decayed(cells, moment.now_s)
        mine = useful(cells)
        total = _useful_total(moment)
        counts = np.log1p(cells[:, [OFFERED, ACCEPTED, COMPLETED, DISMISSED, SELF]])
        ages = [age_hours(moment.now_s, cells[:, last]) for last in (LAST_OFFERED, LAST_USEFUL, LAST_DISMISSED)]
        return np.column_stack(
            [
                counts,
                mine / (total + 1.0),
                ratio(cells[:, ACCEPTED], cells[:, OFFERED], 0.1, 5.0),
                np.log1p(recent[:, 1]),
                np.log1p(recent[:, 3]),
                *ages,
                constant(np.log1p(total), len(mine)),
            ]
        )


def _useful_total(moment: Moment) -> float:
    user = moment.known.user
    return float(useful(user.counters.totals())) if user is not None else 0.0
