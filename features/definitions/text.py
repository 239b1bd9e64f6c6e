"""How much what was said speaks for this action, by the linear text model of the serving version."""

from __future__ import annotations

import numpy as np

from features.definitions.family import Columns, against_best
from features.known import Moment


class TextScore:
    """Log-probability given the situation's terms, its gap to the best candidate, and its rank among them."""

    name = "text"
    columns = ("text_log_probability", "text_gap", "text_rank")

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]; all NaN without a text model."""
        return text_columns(moment.text_scores, len(moment.actions))


def text_columns(scores: Columns | None, rows: int) -> Columns:
    """The family's columns [rows, 3] from log-probabilities [rows]; training fills in out-of-fold ones."""
    return np.full((rows, 3), np.nan) if scores is None else against_best(scores)
