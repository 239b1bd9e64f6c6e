"""safety: the last look fails closed."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from features.catalogue import ActionSpec
from features.known import Known
from ranker.clock import ManualClock
from ranker.compiled import CompiledCatalogue
from ranker.degraded import Degraded
from ranker.judges import Verdicts
from ranker.policy_config import SafetyClass
from ranker.stages.safety import Safety, SafetyJudge
from ranker.text_check import MAX_REMEMBERED, TextCheck, rendered
from ranker.types import Ranking
from tests.fakes import FakeScorer, catalogue, context, known, ranking, unread, user

CLASSES = {
    "adult": SafetyClass(min_age=18, restricted=True),
    "local": SafetyClass(regions=["GB"]),
    "asked": SafetyClass(consent="ads"),
    "blocked": SafetyClass(withhold=True),
}


def judge(
    compiled: CompiledCatalogue, scorer: FakeScorer | None = None, clock: ManualClock | None = None
) -> SafetyJudge:
    return SafetyJudge(compiled, CLASSES, clock or ManualClock(), scorer)


def verdict(spec: dict[str, Any], what: Known | None = None, **fields: Any) -> str:
    compiled = catalogue({"a": spec})
    return judge(compiled).judge(ranking(compiled, "a", what=what, **fields)).reasons[0]


@pytest.mark.parametrize(
    ("spec", "profile", "region", "reason"),
    [
        ({}, {}, None, ""),
        ({"safety_class": "adult"}, {"age": 18}, None, ""),
        ({"safety_class": "adult"}, {"age": 17}, None, "class_adult"),
        ({"safety_class": "adult"}, {}, None, "class_adult"),
        ({"safety_class": "local"}, {}, "GB", ""),
        ({"safety_class": "local"}, {}, "FR", "class_local"),
        ({"safety_class": "local"}, {}, None, "class_local"),
        ({"safety_class": "asked"}, {"consents": ["ads"]}, None, ""),
        ({"safety_class": "asked"}, {}, None, "class_asked"),
        ({"safety_class": "blocked"}, {"age": 90}, None, "class_blocked"),
        ({"safety_class": "unheard_of"}, {"age": 90}, None, "class_unknown"),
    ],
)
def test_a_class_against_user_and_context(
    spec: dict[str, Any], profile: dict[str, Any], region: str | None, reason: str
) -> None:
    assert verdict(spec, known(user(profile)), context={"region": region}) == reason


def test_someone_who_was_not_read_is_of_unknown_age() -> None:
    assert verdict({"safety_class": "adult"}, unread()) == "class_adult"


def test_a_catalogue_that_lags_withholds_restricted_classes() -> None:
    compiled = catalogue({"a": {"safety_class": "adult"}, "b": {"safety_class": "local"}})
    lagging = judge(compiled)
    lagging.restricted_withheld = True
    state = ranking(compiled, "ab", what=known(user({"age": 30})), context={"region": "GB"})
    assert lagging.judge(state).reasons == ["catalogue_lag", ""]
    assert lagging.judge(state).degraded == (Degraded.SAFETY_WITHHELD,)
    lags = [True, False]
    lagging.lagging = lambda: lags.pop(0)
    assert [lagging.judge(state).reasons[0] for _ in range(2)] == ["catalogue_lag", ""]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [(None, "withdrawn"), (ActionSpec(off=True), "off"), (ActionSpec(safety_class="blocked"), "class_blocked")],
)
def test_what_changed_since_the_draw_is_deleted_from_the_order(spec: ActionSpec | None, reason: str) -> None:
    compiled = catalogue({"a": {}, "b": {}, "c": {}})
    state = ranking(compiled, "abc")
    state = type(state)(**{**state.__dict__, "order": (2, 0, 1), "greedy": (0, 1, 2)})
    if spec is None:
        compiled.catalogue.remove("a")
    else:
        compiled.catalogue.put("a", spec)
    result = asyncio.run(Safety(judge(compiled)).run(state))
    assert (result.order, result.greedy) == ((2, 1), (1, 2))
    assert result.candidates.actions == ("a", "b", "c")
    assert [(drop.stage, drop.action, drop.reason) for drop in result.drops] == [("safety", "a", reason)]


def test_expiry_goes_by_the_clock_now_and_in_a_replay_by_the_request() -> None:
    compiled = catalogue({"a": {"expires": "2023-11-14T22:13:21Z"}})
    clock = ManualClock()
    strict = judge(compiled, clock=clock)
    assert strict.judge(ranking(compiled, "a")).reasons == [""]
    clock.advance(1.0)
    assert strict.judge(ranking(compiled, "a")).reasons == ["expired"]
    assert strict.judge(ranking(compiled, "a", traffic="replay")).reasons == [""]


def test_a_failing_stage_offers_nothing_and_says_so() -> None:
    compiled = catalogue({"a": {}})
    result = Safety(judge(compiled)).recover(ranking(compiled, "a"), RuntimeError("broken"))
    assert (result.order, result.items, len(result.candidates)) == ((), (), 0)
    assert set(result.degraded) == {Degraded.EMPTY, Degraded.SAFETY_WITHHELD}


TEXTS: dict[str, dict[str, Any]] = {
    "good": {"title": "all is well", "needs_text_check": True},
    "bad": {"title": "unsafe words", "needs_text_check": True},
    "free": {"title": "unsafe but not asked about"},
}


def check(scorer: FakeScorer | None, clock: ManualClock | None = None, deadline_ms: float = 100.0) -> Verdicts:
    compiled = catalogue(TEXTS)
    state: Ranking = ranking(compiled, list(TEXTS))
    state = type(state)(**{**state.__dict__, "deadline_ms": deadline_ms})
    return judge(compiled, scorer, clock).judge(state)


def test_a_text_at_the_threshold_is_withheld_where_the_action_asks_for_it() -> None:
    assert check(FakeScorer(threshold=1.0)).reasons == ["", "text", ""]


def test_without_a_scorer_the_catalogues_rules_are_all() -> None:
    verdicts = check(None)
    assert verdicts.reasons == ["", "", ""] and verdicts.degraded == ()


def test_a_failing_scorer_withholds_what_needs_it() -> None:
    verdicts = check(FakeScorer(error=RuntimeError("no weights")))
    assert verdicts.reasons == ["text_unchecked", "text_unchecked", ""]
    assert verdicts.degraded == (Degraded.SAFETY_WITHHELD,)


@pytest.mark.parametrize("scores", [np.array([np.nan, 0.0]), np.zeros(3), np.zeros((2, 1))], ids=str)
def test_a_scorer_that_answers_nonsense_fails(scores: NDArray[np.float64]) -> None:
    class Nonsense(FakeScorer):
        def scores(self, texts: Any) -> NDArray[np.float64]:
            return scores

    assert check(Nonsense()).degraded == (Degraded.SAFETY_WITHHELD,)


def test_a_late_scorer_is_not_waited_for() -> None:
    scorer = FakeScorer()
    verdicts = check(scorer, ManualClock(elapsed_ms=100.0))
    assert verdicts.reasons == ["text_unchecked", "text_unchecked", ""] and scorer.texts == []


def test_a_text_is_scored_once_and_so_the_second_look_needs_no_time() -> None:
    compiled = catalogue(TEXTS)
    clock = ManualClock()
    scorer = FakeScorer(clock=clock, takes_ms=100.0)
    strict = judge(compiled, scorer, clock)
    state = ranking(compiled, list(TEXTS))
    state = type(state)(**{**state.__dict__, "deadline_ms": 100.0})
    assert strict.judge(state).reasons == strict.judge(state).reasons == ["", "text", ""]
    assert scorer.texts == ["all is well", "unsafe words"]


def test_another_scorer_is_asked_anew() -> None:
    compiled = catalogue(TEXTS)
    strict = judge(compiled, FakeScorer())
    strict.judge(ranking(compiled, list(TEXTS)))
    strict.scorer = FakeScorer(word="well")
    assert strict.judge(ranking(compiled, list(TEXTS))).reasons == ["text", "", ""]


def test_what_is_remembered_of_texts_is_bounded() -> None:
    checker = TextCheck(FakeScorer())
    for start in range(0, 3 * MAX_REMEMBERED, 500):
        checker.unsafe([f"text {number}" for number in range(start, start + 500)], lambda: False)
    assert len(checker._known) <= MAX_REMEMBERED


@pytest.mark.parametrize(
    ("title", "fields", "text"),
    [
        ("Save {target}", {"title": "beach"}, "Save beach"),
        ("Save {target}", {}, "Save 7"),
        ("Save {target}", {"title": 3}, "Save 7"),
        ("Save", {"title": "beach"}, "Save"),
        ("{target}{target} {other}", {"title": "{target}"}, "{target}{target} {other}"),
    ],
)
def test_the_title_is_rendered_with_its_target(title: str, fields: dict[str, Any], text: str) -> None:
    entity = context(entities=[{"id": "7", "type": "image", "fields": fields}]).entities[0]
    assert rendered(title, "image:7", entity) == text


def test_a_target_outside_the_context_is_rendered_by_its_name() -> None:
    assert rendered("Save {target}", "image:7", None) == "Save image:7"
    assert rendered("Save {target}", None, None) == "Save "
