"""freshness: what an action is about is still there, and recent enough, now."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ranker.clock import ManualClock
from ranker.stages.freshness import Freshness, FreshnessJudge
from tests.fakes import catalogue, ranking

# The clock's now is 2023-11-14T22:13:20Z.
ENTITIES = [
    {"id": "1", "type": "image", "time": "2023-11-14T22:13:10Z"},
    {"id": "2", "type": "image"},
    {"id": "3", "type": "image", "time": "2023-11-14T22:20:00Z"},
]


def verdict(spec: dict[str, Any], target: str | None, clock: ManualClock | None = None, **fields: Any) -> str:
    compiled = catalogue({"a": spec})
    state = ranking(compiled, [("a", target)], **{"context": {"entities": ENTITIES}, **fields})
    return FreshnessJudge(compiled, clock or ManualClock()).judge(state).reasons[0]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("image:1", ""),
        ("image:9", "target_gone"),
        ("link:9", ""),
        (None, ""),
        ("image", ""),
    ],
)
def test_a_target_of_a_listed_type_must_be_listed(target: str | None, reason: str) -> None:
    assert verdict({}, target) == reason


@pytest.mark.parametrize(
    ("limit_s", "target", "reason"),
    [
        (10.0, "image:1", ""),
        (9.0, "image:1", "target_stale"),
        (0.0, "image:1", ""),
        (9.0, "image:2", ""),
        (9.0, "image:3", ""),
        (9.0, None, ""),
    ],
)
def test_a_target_must_not_be_older_than_the_actions_limit(limit_s: float, target: str | None, reason: str) -> None:
    assert verdict({"max_target_age_s": limit_s}, target) == reason


def test_age_goes_by_the_clock_now_and_in_a_replay_by_the_request() -> None:
    later = ManualClock(wall_s=1_800_000_000.0)
    assert verdict({"max_target_age_s": 60.0}, "image:1", later) == "target_stale"
    assert verdict({"max_target_age_s": 60.0}, "image:1", later, traffic="replay") == ""


def test_what_expired_or_the_caller_excludes_is_not_fresh() -> None:
    assert verdict({"expires": "2023-11-14T22:13:20Z"}, None) == "expired"
    assert verdict({}, None, exclude=["a"]) == "excluded"


def test_what_became_stale_since_the_draw_is_deleted_from_the_order() -> None:
    compiled = catalogue({"a": {"max_target_age_s": 15.0}})
    clock = ManualClock()
    state = ranking(compiled, [("a", "image:1"), ("a", "image:2")], context={"entities": ENTITIES})
    state = type(state)(**{**state.__dict__, "order": (0, 1), "greedy": (0, 1)})
    stage = Freshness(FreshnessJudge(compiled, clock))
    assert asyncio.run(stage.run(state)).order == (0, 1)
    clock.advance(6.0)
    assert asyncio.run(stage.run(state)).order == (1,)
