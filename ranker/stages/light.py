"""light: one score per candidate from the light model; without one, the order of the priors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from features.known import Moment
from features.priors import prior_of
from ranker.degraded import Degraded
from ranker.errors import RankerError
from ranker.types import Ranking

Scored = tuple[NDArray[np.float32], NDArray[np.float64]]


class LightModel(Protocol):
    """One row of features and one score per candidate, in order: a model cannot drop one."""

    @property
    def version(self) -> str:
        """The registry's name of it."""
        ...

    @property
    def schema(self) -> str:
        """Fingerprint of the features it was trained on."""
        ...

    def score(self, moment: Moment) -> Scored:
        """Features [candidates, columns] and scores [candidates]; raises when it cannot."""
        ...


@dataclass
class Light:
    """Fills `prior`, `scores`, and `features` where the model made them.

    Args:
        schema: fingerprint of the features that this process computes.
        model: None until there is one; replaced as a whole when another version becomes active.
    """

    schema: str
    model: LightModel | None = None
    name: str = "light"

    async def run(self, ranking: Ranking) -> Ranking:
        """The ranking with scores; a failing model raises, and the runner asks `recover`."""
        if self.model is None:
            return self._by_priors(ranking, Degraded.LIGHT_MISSING)
        if self.model.schema != self.schema:
            return self._by_priors(ranking, Degraded.LIGHT_SCHEMA)
        if not len(ranking.candidates):
            return self._versioned(self._by_priors(ranking), self.model)
        moment = _moment(ranking)
        features, scores = _checked(self.model, self.model.score(moment), len(ranking.candidates))
        scored = ranking.but(prior=prior_of(moment), features=features, scores=scores)
        return self._versioned(scored, self.model)

    def recover(self, ranking: Ranking, _error: Exception) -> Ranking:
        """A model that fails is as good as none."""
        return self._by_priors(ranking, Degraded.LIGHT_MISSING)

    def late(self, ranking: Ranking) -> Ranking:
        """No time for the model: the priors are at hand."""
        return self._by_priors(ranking, Degraded.LIGHT_MISSING)

    def _by_priors(self, ranking: Ranking, *reasons: Degraded) -> Ranking:
        prior = prior_of(_moment(ranking)) if len(ranking.candidates) else np.zeros(0)
        versions = {**ranking.versions, "schema": self.schema}
        return ranking.but(prior=prior, scores=prior, features=None, versions=versions).because(*reasons)

    def _versioned(self, ranking: Ranking, model: LightModel) -> Ranking:
        return ranking.but(versions={**ranking.versions, "schema": self.schema, "light": model.version})


def _moment(ranking: Ranking) -> Moment:
    assert ranking.known is not None, "the context stage runs first"
    rows = ranking.candidates
    request = ranking.request
    return Moment(ranking.now_s, request.user, request.context, ranking.known, rows.actions, rows.targets, rows.specs)


def _checked(model: LightModel, scored: Scored, size: int) -> Scored:
    features, scores = scored
    if scores.shape != (size,) or len(features) != size:
        raise RankerError(f"light model {model.version!r}: {len(scores)} scores for {size} candidates")
    if not np.isfinite(scores).all():
        raise RankerError(f"light model {model.version!r}: a score is not finite")
    return features, np.asarray(scores, np.float64)
