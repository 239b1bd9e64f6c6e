"""light: the model's scores, or the order of the priors."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray

from features.known import Moment
from features.priors import back_off
from ranker.degraded import Degraded
from ranker.errors import RankerError
from ranker.stages.light import Light, LightModel
from ranker.types import Ranking
from tests.fakes import SCHEMA, FakeModel, catalogue, known, popular, ranking


def state(names: str = "abc") -> Ranking:
    compiled = catalogue({name: {} for name in "abc"})
    return ranking(compiled, list(names), what=known(None, popular({"b": 5, "c": 1})))


def run(model: LightModel | None, names: str = "abc") -> Ranking:
    return asyncio.run(Light(SCHEMA, model).run(state(names)))


def prior() -> NDArray[np.float64]:
    before = state()
    assert before.known is not None
    rows = before.candidates
    return back_off(
        Moment(before.now_s, "u1", before.request.context, before.known, rows.actions, rows.targets, rows.specs)
    )


def test_a_model_scores_and_names_its_version_and_schema() -> None:
    result = run(FakeModel({"a": 2.0, "c": -1.0}))
    assert result.scores is not None and result.scores.tolist() == [2.0, 0.0, -1.0]
    assert result.features is not None and result.features.shape == (3, 1)
    assert result.versions == {"schema": SCHEMA, "light": "7"} and result.degraded == ()
    assert result.prior is not None and result.prior.tolist() == prior().tolist()


@pytest.mark.parametrize(
    ("model", "reason"), [(None, Degraded.LIGHT_MISSING), (FakeModel(schema="old"), Degraded.LIGHT_SCHEMA)]
)
def test_without_a_model_that_fits_the_priors_are_the_scores(model: LightModel | None, reason: Degraded) -> None:
    result = run(model)
    assert result.scores is not None and result.scores.tolist() == prior().tolist()
    assert np.argsort(-result.scores).tolist() == [1, 2, 0]
    assert result.degraded == (reason,) and result.versions == {"schema": SCHEMA} and result.features is None


@pytest.mark.parametrize(
    "scores", [np.array([1.0, np.nan, 0.0]), np.array([np.inf, 0.0, 0.0]), np.zeros(2), np.zeros((3, 1))], ids=str
)
def test_scores_that_are_no_scores_are_trouble(scores: NDArray[np.float64]) -> None:
    class Odd(FakeModel):
        def score(self, moment: Moment) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
            return np.zeros((3, 1), np.float32), scores

    with pytest.raises(RankerError, match="light model '7'"):
        run(Odd())


def test_a_failing_model_is_as_good_as_none() -> None:
    stage = Light(SCHEMA, FakeModel(error=RuntimeError("no")))
    assert stage.recover(state(), RuntimeError("no")).degraded == (Degraded.LIGHT_MISSING,)
    assert stage.late(state()).scores is not None


def test_nothing_to_score_is_not_asked_about() -> None:
    result = run(FakeModel(error=RuntimeError("asked about nothing")), "")
    assert result.scores is not None and len(result.scores) == 0 and result.degraded == ()


def test_another_model_takes_over_between_requests() -> None:
    stage = Light(SCHEMA, FakeModel(version="1"))
    versions = []
    for version in ("1", "2"):
        stage.model = FakeModel(version=version)
        versions.append(asyncio.run(stage.run(state())).versions["light"])
    assert versions == ["1", "2"]
