"""The runner: the arrow, time, fallbacks, and what comes out of the whole."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import StoreUnavailable
from ranker.clock import ManualClock
from ranker.degraded import Degraded
from ranker.pipeline import Pipeline, Stage, deadline_ms
from ranker.propensity import Exploration
from ranker.types import Ranking
from tests.fakes import (
    FakeModel,
    FakeReader,
    FakeScorer,
    FakeSecond,
    Parts,
    Tally,
    asked,
    catalogue,
    known,
    request,
    unread,
)

ARROW = "context → candidates → eligibility → policy → light → second → explore → safety → freshness → top actions"
README = Path(__file__).parents[2] / "README.md"

SPECS: dict[str, dict[str, Any]] = {
    "open": {},
    "save": {"entity_types": ["image"], "title": "Save {target}"},
    "pay": {"consent": "payments", "min_age": 18, "safety_class": "sensitive"},
    "tell": {"needs_text_check": True, "title": "Tell {target}"},
    "nag": {"max_offers_per_day": 2},
    "old": {"off": True},
}


SECOND = [reason for reason in Degraded if reason.startswith("second:")]


def run(pipeline: Pipeline, ranking: Ranking) -> Ranking:
    return asyncio.run(pipeline.run(ranking))


def offered(ranking: Ranking) -> list[str]:
    return [item.action for item in ranking.items]


@dataclasses.dataclass
class Broken:
    """A stage that takes a while and raises."""

    name: str
    clock: ManualClock
    message: str = "broken"

    async def run(self, ranking: Ranking) -> Ranking:
        self.clock.elapsed_ms += 3.0
        raise RuntimeError(self.message)


def breaking(parts: Parts, name: str) -> Pipeline:
    """The pipeline in which one stage raises, keeping what that stage says about failures."""
    pipeline = parts.pipeline()

    async def fail(_ranking: Ranking) -> Ranking:
        raise RuntimeError(f"{name} is broken")

    def broken(stage: Stage) -> Stage:
        double = copy.copy(stage)
        object.__setattr__(double, "run", fail)
        return double

    stages = tuple(broken(stage) if stage.name == name else stage for stage in pipeline.stages)
    return dataclasses.replace(pipeline, stages=stages)


def test_the_pipeline_prints_as_the_arrow() -> None:
    assert str(Parts(catalogue({})).pipeline()) == ARROW


def test_the_readme_shows_the_same_arrow() -> None:
    lines = README.read_text("utf-8").splitlines() if README.exists() else []
    arrows = [line.strip().strip("`") for line in lines if line.strip().strip("`").startswith("context →")]
    assert all(arrow == ARROW for arrow in arrows)


def test_each_stage_is_timed_and_so_is_the_whole() -> None:
    clock = ManualClock()
    tally = Tally()
    reader = FakeReader(clock=clock, takes_ms=4.0)
    result = run(Parts(catalogue(SPECS), reader, clock, observer=tally).pipeline(), asked())
    assert list(result.timings_ms) == [*ARROW.split(" → "), "total"]
    assert result.timings_ms["context"] == result.timings_ms["total"] == 4.0
    assert tally.times == list(result.timings_ms.items())


def test_drops_are_counted_by_stage_and_reason() -> None:
    tally = Tally()
    result = run(Parts(catalogue(SPECS), observer=tally).pipeline(), asked())
    assert Counter((drop.stage, drop.reason) for drop in result.drops) == {
        (stage, reason): count for stage, reason, count in tally.drops
    }
    assert ("eligibility", "off", 1) in tally.drops
    assert ("policy", "min_age", 1) in tally.drops


@pytest.mark.parametrize("name", [name for name in ARROW.split(" → ") if name not in ("context", "light", "second")])
def test_a_stage_that_must_not_fail_empties_the_list_when_it_does(name: str) -> None:
    tally = Tally()
    result = run(breaking(Parts(catalogue(SPECS), observer=tally), name), asked())
    assert result.items == () and Degraded.EMPTY in result.degraded
    assert tally.failures == [(name, f"{name} is broken")]
    assert (Degraded.SAFETY_WITHHELD in result.degraded) == (name == "safety")


def test_a_failing_context_leaves_the_priors() -> None:
    result = run(breaking(Parts(catalogue(SPECS)), "context"), asked())
    assert set(offered(result)) == {"open", "tell", "nag"}
    assert Degraded.FEATURES_UNAVAILABLE in result.degraded


def test_a_failing_light_stage_leaves_the_order_of_the_priors() -> None:
    tally = Tally()
    parts = Parts(catalogue(SPECS), model=FakeModel(error=RuntimeError("no trees")), observer=tally)
    result = run(parts.pipeline(), asked())
    assert set(offered(result)) == {"open", "tell", "nag"}
    assert result.degraded == (Degraded.LIGHT_MISSING,)
    assert tally.failures == [("light", "no trees")]
    assert "light" not in result.versions


def test_a_stage_that_fails_every_time_is_counted_each_time_and_logged_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, tally = ManualClock(), Tally()
    pipeline = Pipeline((Broken("light", clock),), clock, tally)
    for _ in range(5):
        run(pipeline, asked())
    assert len(tally.failures) == 5 and len(caplog.records) == 1
    clock.advance(10.0)
    run(pipeline, asked())
    assert len(caplog.records) == 2


def test_what_fails_twice_empties_the_list() -> None:
    @dataclasses.dataclass
    class Hopeless(Broken):
        def recover(self, ranking: Ranking, error: Exception) -> Ranking:
            raise error

    clock, tally = ManualClock(), Tally()
    result = run(Pipeline((Hopeless("light", clock),), clock, tally), asked())
    assert result.degraded == (Degraded.EMPTY,) and len(tally.failures) == 2


def test_past_the_deadline_nothing_is_read_and_no_model_runs_but_every_check_does() -> None:
    reader = FakeReader()
    parts = Parts(catalogue(SPECS), reader, model=FakeModel({"open": 9.0}))
    result = run(parts.pipeline(), asked(deadline_ms=0.0))
    assert reader.asked_ms == []
    assert set(result.degraded) == {Degraded.FEATURES_TIMEOUT, Degraded.LIGHT_MISSING, Degraded.POLICY_UNAVAILABLE}
    assert "old" not in offered(result) and "pay" not in offered(result)


def test_a_slow_read_costs_the_model_and_not_the_answer() -> None:
    clock = ManualClock()
    parts = Parts(catalogue(SPECS), FakeReader(clock=clock, takes_ms=200.0), clock, model=FakeModel({"open": 9.0}))
    result = run(parts.pipeline(), asked(deadline_ms=100.0))
    assert result.items and result.degraded == (Degraded.LIGHT_MISSING,)


def test_the_budget_is_the_callers_or_its_prioritys() -> None:
    assert deadline_ms(request(budget_ms=20.0), 1000.0) == 1020.0
    assert deadline_ms(request(), 1000.0) == 1100.0
    assert deadline_ms(request(priority="premium"), 1000.0) == 1060.0
    assert deadline_ms(request(priority="premium"), 0.0, {"premium": 5.0}) == 5.0


def test_every_reason_that_stages_can_give_is_given() -> None:
    """The rest belongs to the service around the pipeline: the log, earlier answers, the applier's lag."""
    checked = {"tell": SPECS["tell"]}
    clock = ManualClock()
    stale = FakeReader(unread(), (Degraded.FEATURES_STALE,))
    cases: list[tuple[Parts, Ranking]] = [
        (Parts(catalogue(SPECS), stale, model=FakeModel(schema="other")), asked()),
        (Parts(catalogue(SPECS), FakeReader(error=StoreUnavailable("no store")), model=None), asked()),
        (Parts(catalogue(SPECS), clock=clock), asked(deadline_ms=-1.0)),
        (Parts(catalogue(checked), scorer=FakeScorer(error=RuntimeError("no weights"))), asked()),
        *((Parts(catalogue(SPECS), second=FakeSecond(found=reason)), asked()) for reason in SECOND),
    ]
    given = {reason for parts, ranking in cases for reason in run(parts.pipeline(), ranking).degraded}
    assert given == set(Degraded) - {Degraded.ID_UNVERIFIED, Degraded.LOG_UNAVAILABLE}


def test_the_same_id_gets_the_same_list_in_every_process() -> None:
    specs: dict[str, dict[str, Any]] = {f"action_{number}": {} for number in range(30)}
    exploration = Exploration(epsilon=0.5, temperature=2.0)

    def answers() -> list[tuple[str, list[str]]]:
        parts = Parts(catalogue(specs), model=FakeModel({"action_3": 1.0}), exploration=exploration)
        pipeline = parts.pipeline()
        results = [run(pipeline, asked(f"r{number}", k=5)) for number in range(40)]
        return [(result.traffic, offered(result)) for result in results]

    first = answers()
    assert first == answers()
    assert {traffic for traffic, _ in first} == {"live", "explore"}
    assert len({tuple(actions) for traffic, actions in first if traffic == "explore"}) > 10
    assert len({tuple(actions) for traffic, actions in first if traffic == "live"}) == 1


def test_without_exploration_every_propensity_is_exactly_one() -> None:
    result = run(Parts(catalogue(SPECS)).pipeline(), asked(k=50))
    assert [item.propensity for item in result.items] == [1.0] * len(result.items)
    assert [item.position for item in result.items] == list(range(1, len(result.items) + 1))


HOSTILE = ["", "open", "save", "old", "nag", "\x00", "a:b", "\ud800", "💥" * 60, "save\n", "' OR 1=1", "../..", "None"]
candidate = st.fixed_dictionaries(
    {"action": st.sampled_from(HOSTILE[1:]) | st.text(min_size=1, max_size=256)},
    optional={
        "target": st.none() | st.sampled_from(["image:1", "image:2", ":", "image:"]) | st.text(min_size=1, max_size=9)
    },
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(candidate, min_size=1, max_size=40),
    st.lists(st.sampled_from(HOSTILE[1:]), max_size=3),
    st.integers(1, 50),
    st.floats(0.0, 1.0),
)
def test_whatever_candidates_come_each_is_offered_once_or_dropped_once(
    candidates: list[dict[str, str | None]], exclude: list[str], k: int, epsilon: float
) -> None:
    image = {"entities": [{"id": "1", "type": "image"}]}
    parts = Parts(catalogue(SPECS), exploration=Exploration(epsilon))
    result = run(parts.pipeline(), asked(candidates=candidates, exclude=exclude, k=k, context=image))
    offered_pairs = [(item.action, item.target) for item in result.items]
    assert len(set(offered_pairs)) == len(offered_pairs) <= k
    assert len(result.order) + len(result.drops) == len(candidates)
    assert {action for action, _ in offered_pairs} <= set(SPECS) - set(exclude) - {"old", "pay"}
    assert all(target == "image:1" for action, target in offered_pairs if action == "save")
    assert all(0.0 < item.propensity <= 1.0 for item in result.items)
    assert (Degraded.EMPTY in result.degraded) == (not offered_pairs)


def test_a_thousand_candidates_are_ranked() -> None:
    specs: dict[str, dict[str, Any]] = {f"action_{number}": {} for number in range(1000)}
    parts = Parts(catalogue(specs), model=FakeModel({f"action_{number}": float(number) for number in range(1000)}))
    result = run(parts.pipeline(), asked(candidates=[{"action": name} for name in specs], k=3))
    assert offered(result) == ["action_999", "action_998", "action_997"]
    assert len(result.order) == 1000


def test_nothing_known_at_all_still_ranks() -> None:
    result = run(Parts(catalogue(SPECS), FakeReader(known()), model=None).pipeline(), asked(explain=True))
    assert all("cold_start" in item.reasons for item in result.items)
    assert result.degraded == (Degraded.LIGHT_MISSING,)
