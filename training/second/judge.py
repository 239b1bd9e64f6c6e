"""The second stage in an evaluation: what it would have answered to each query of a replay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from features.events import Event
from ranker.second.direct import score_direct, see
from ranker.second.happenings import Courses
from ranker.second.order import one_order, passed_on
from ranker.second.tokens import encode_candidates
from ranker.second.weights import SecondModel
from training.queries import Query

Scores = NDArray[np.float64]

COLD, SHORT = "none", "up to 9"


class SecondJudge:
    """Follows a replay and scores its queries.

    Args:
        model: whose tokens and weights are used.
    """

    def __init__(self, model: SecondModel) -> None:
        self._model = model
        self.courses = Courses()

    def follow(self, offset: int, event: Event) -> None:
        """Takes an event in."""
        self.courses.apply(offset, event)

    def scores(self, query: Query, features: NDArray[np.float32], light: Scores) -> Scores:
        """Scores [candidates] in the order of both stages.

        Args:
            features, light: of all candidates, by the light stage.
        """
        model, moment, event = self._model, query.moment, query.decision.event
        rows = passed_on(light, model.passed_on)
        seen = see(model, self.courses.of(moment.user), moment.now_s, moment.user, event.session, moment.context)
        chosen = rows.tolist()
        candidates = encode_candidates(
            [moment.actions[row] for row in chosen], [moment.targets[row] for row in chosen],
            features[rows], light[rows], model.vocabulary,
        )  # fmt: skip
        return one_order(light, rows, model.utility(score_direct(model, seen, candidates)))

    def history(self, query: Query) -> str:
        """How much of the user's history there is, for a slice."""
        total = self.courses.of(query.moment.user).total
        return COLD if not total else SHORT if total < 10 else "10 or more"
