"""When a request would end: the cheap bound is never below the forecast, which is the rule's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranker.inference.forecast import Forecast
from ranker.inference.models import Models
from ranker.inference.request import Request
from ranker.inference.room import Room
from ranker.inference.scheduler_config import SchedulerConfig
from ranker.inference.waiting import Waiting

ASKED = st.tuples(st.integers(1, 64), st.floats(0.0, 500.0), st.sampled_from(["premium", "normal", "shadow"]))


def waiting(room: Room, models: Models, number: int, asked: tuple[int, float, str], model: str = "m@1") -> Waiting:
    tokens, deadline, priority = asked
    request = Request(f"r{number}", model, tokens, 0.0, deadline, priority)
    return Waiting(request, room.lane(model, priority, models), tokens, 0.0, deadline, deadline, number)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(ASKED, max_size=60),
    ASKED,
    st.integers(64, 200),
    st.integers(1, 40),
    st.floats(0.0, 9.0),
    st.floats(0, 0.5),
)
def test_the_latest_end_is_no_earlier_than_the_end(
    queue: list[tuple[int, float, str]],
    newcomer: tuple[int, float, str],
    tokens: int,
    requests: int,
    a: float,
    b: float,
) -> None:
    room, models = Room(), Models()
    models.of("m@1").cost.seed(a, b, tokens)
    forecast = Forecast(SchedulerConfig(max_batch_tokens=tokens, max_batch_requests=requests), room)
    for number, asked in enumerate(queue):
        room.add(waiting(room, models, number, asked))
    last = waiting(room, models, len(queue), newcomer)
    assert forecast.end_ms(last, 5.0) <= forecast.latest_end_ms(last, 5.0) + 1e-6


def test_the_latest_end_is_unknown_beside_another_model_or_without_a_line() -> None:
    room, models = Room(), Models()
    forecast = Forecast(SchedulerConfig(), room)
    first = waiting(room, models, 1, (1, 100.0, "normal"))
    assert forecast.latest_end_ms(first, 0.0) == math.inf
    models.of("m@1").cost.seed(1.0, 0.0, 64)
    assert forecast.latest_end_ms(first, 0.0) < 10.0
    room.add(waiting(room, models, 2, (1, 100.0, "normal"), "n@1"))
    assert forecast.latest_end_ms(first, 0.0) == math.inf


@pytest.mark.parametrize(("queued", "ends"), [(0, 10.0), (1, 10.0), (2, 20.0), (5, 30.0)])
def test_batches_ahead_are_as_full_as_the_mean_size_allows(queued: int, ends: float) -> None:
    room, models = Room(), Models()
    models.of("m@1").cost.seed(10.0, 0.0, 64)
    forecast = Forecast(SchedulerConfig(max_batch_tokens=8, max_batch_requests=2), room)
    for number in range(queued):
        room.add(waiting(room, models, number, (4, 50.0, "normal")))
    assert forecast.end_ms(waiting(room, models, 9, (4, 60.0, "normal")), 0.0) == ends


def test_what_is_empty_holds_on_to_nobody() -> None:
    room, models = Room(), Models()
    for number in range(3):
        room.add(waiting(room, models, number, (1, 50.0, "normal")))
    lane = room.queues["normal"].lanes["m@1"]
    for each in list(lane.line):
        room.leave(each)
    assert not len(lane.expiry) and not len(room.queues["normal"].latest)
