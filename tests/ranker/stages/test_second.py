"""second: other scores for the best candidates, or the light order and the reason why."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from ranker.degraded import Degraded
from ranker.stages.second import COLD, NoSecond, Rescored, Second
from ranker.types import Pool, Ranking
from tests.fakes import FakeModel, FakeSecond, Parts, asked, catalogue, known, ranking

SPECS: dict[str, dict[str, Any]] = {name: {} for name in "abc"}


def scored() -> Ranking:
    state = ranking(catalogue(SPECS), list("abc"), what=known(None))
    features = np.zeros((3, 2), np.float32)
    scores = np.array([3.0, 2.0, 1.0])
    return state.but(features=features, scores=scores, pool=Pool(state.candidates, scores, features))


def run(second: FakeSecond, state: Ranking | None = None) -> Ranking:
    return asyncio.run(Second(second).run(state or scored()))


def test_its_scores_replace_those_of_light_and_of_what_the_log_will_say_the_draw_was_by() -> None:
    result = run(FakeSecond(Rescored("9", np.array([1.0, 5.0, 2.0]))))
    assert result.scores is not None and result.scores.tolist() == [1.0, 5.0, 2.0]
    assert result.pool is not None and result.pool.scores.tolist() == [1.0, 5.0, 2.0]
    assert result.versions["second"] == "9" and result.degraded == ()


@pytest.mark.parametrize("reason", [reason for reason in Degraded if reason.startswith("second:")])
def test_why_it_could_not_is_said_and_the_light_order_stands(reason: Degraded) -> None:
    result = run(FakeSecond(reason))
    assert result.degraded == (reason,)
    assert result.scores is not None and result.scores.tolist() == [3.0, 2.0, 1.0]
    assert "second" not in result.versions


def test_a_user_without_history_is_a_reason_and_no_degradation() -> None:
    result = run(FakeSecond(COLD))
    assert result.degraded == () and result.notes == (COLD,)


def test_a_cold_user_is_among_the_reasons_of_an_explained_answer() -> None:
    pipeline = Parts(catalogue(SPECS), model=FakeModel({"b": 1.0}), second=FakeSecond(COLD)).pipeline()
    result = asyncio.run(pipeline.run(asked().but(explain=True)))
    assert all(COLD in item.reasons for item in result.items) and result.items


@pytest.mark.parametrize("scores", [[1.0, 2.0], [1.0, float("nan"), 2.0], [1.0, float("inf"), 2.0]])
def test_scores_that_cannot_be_are_not_used(scores: list[float]) -> None:
    result = run(FakeSecond(Rescored("9", np.array(scores))))
    assert result.degraded == (Degraded.SECOND_ERROR,)
    assert result.scores is not None and result.scores.tolist() == [3.0, 2.0, 1.0]


def test_where_the_priors_ranked_it_is_not_asked() -> None:
    second = FakeSecond(Rescored("9", np.zeros(3)))
    run(second, scored().but(features=None))
    assert second.asked == []


def test_a_failure_and_a_deadline_that_has_passed_leave_the_light_order() -> None:
    failing = Parts(catalogue(SPECS), model=FakeModel({"b": 1.0}), second=FakeSecond(error=RuntimeError("no tensors")))
    result = asyncio.run(failing.pipeline().run(asked()))
    assert result.items[0].action == "b" and result.degraded == (Degraded.SECOND_ERROR,)
    assert Second(FakeSecond()).late(scored()).degraded == (Degraded.SECOND_BUDGET,)
    assert Second(NoSecond()).late(scored()).degraded == ()
