"""What the way to the device and back costs is learned, and taken off a deadline only so far."""

from __future__ import annotations

import pytest

from ranker.inference.engine import Rejected
from ranker.inference.handoff import Handoff
from tests.ranker.inference.engine_fakes import run, staged, turns


def test_the_typical_and_the_worst_of_the_recent_lags_are_known() -> None:
    handoff = Handoff()
    for number in range(128):
        handoff.took(5.0 if number % 40 == 0 else 0.25)
    assert (handoff.typical_ms, handoff.worst_ms) == (0.25, 5.0)
    assert handoff.before(1000.0, 60.0) == 995.0


def test_a_stalled_machine_takes_a_tenth_of_a_budget_at_most() -> None:
    handoff = Handoff()
    handoff.took(400.0)
    assert handoff.before(1000.0, 50.0) == 995.0
    assert handoff.before(1000.0, 0.0) == 1000.0


def test_lags_are_forgotten_when_they_are_over() -> None:
    handoff = Handoff()
    for lag in (*[30.0] * 128, *[0.1] * 128):
        handoff.took(lag)
    assert handoff.worst_ms == 0.1


def test_a_device_that_is_heard_of_late_leaves_room_before_the_deadlines() -> None:
    async def test() -> None:
        stage = await staged()
        for _ in range(3):
            stage.offer(1, 500.0)
            await turns()
            stage.device.lag_ms = 4.0
            await stage.finish(took_ms=14.0)
        assert stage.engine.metrics()["handoff_ms"]["worst"] == pytest.approx(4.0)
        with pytest.raises(Rejected, match="deadline"):
            # 14 ms for the batch, typical lag included, 1 of margin and 1.6 of the worst lag
            await stage.engine.submit(stage.request(1, 16.0), 1)

    run(test())
