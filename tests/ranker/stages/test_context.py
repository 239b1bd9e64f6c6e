"""context: how long a read may take, and what stands in for it."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from features.errors import StoreTimeout, StoreUnavailable
from features.known import Known
from features.population import EVERYTHING
from ranker.clock import ManualClock
from ranker.degraded import Degraded
from ranker.stages.context import Context
from ranker.types import RankRequest
from tests.fakes import FakeReader, asked, known, popular, user


def test_what_was_read_and_what_went_wrong_is_passed_on() -> None:
    what = known(user({"age": 30}))
    stage = Context(FakeReader(what, (Degraded.FEATURES_STALE,)), ManualClock())
    result = asyncio.run(stage.run(asked()))
    assert result.known is what and result.degraded == (Degraded.FEATURES_STALE,)


@pytest.mark.parametrize(("left_ms", "allowed_ms"), [(100.0, 15.0), (20.0, 10.0), (1.0, 0.5), (-5.0, 0.0)])
def test_a_read_gets_the_stores_timeout_or_half_of_what_is_left(left_ms: float, allowed_ms: float) -> None:
    reader, clock = FakeReader(), ManualClock(elapsed_ms=1000.0)
    asyncio.run(Context(reader, clock).run(dataclasses.replace(asked(), deadline_ms=1000.0 + left_ms)))
    assert reader.asked_ms == [pytest.approx(allowed_ms)]


def test_a_reader_that_does_not_keep_its_time_is_left_alone() -> None:
    class Stuck:
        async def read(
            self, request: RankRequest, now_s: float, timeout_ms: float
        ) -> tuple[Known, tuple[Degraded, ...]]:
            await asyncio.sleep(60)
            raise AssertionError

    with pytest.raises(TimeoutError):
        asyncio.run(Context(Stuck(), ManualClock()).run(asked(deadline_ms=2.0)))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError(), Degraded.FEATURES_TIMEOUT),
        (StoreTimeout("slow"), Degraded.FEATURES_TIMEOUT),
        (StoreUnavailable("down"), Degraded.FEATURES_UNAVAILABLE),
        (RuntimeError("a bug"), Degraded.FEATURES_UNAVAILABLE),
    ],
    ids=repr,
)
def test_a_failed_read_leaves_the_tables_of_the_process(error: Exception, reason: Degraded) -> None:
    tables = popular({"open": 3})
    result = Context(FakeReader(), ManualClock(), tables=tables.at).recover(asked(), error)
    assert result.degraded == (reason,) and result.known is not None
    assert result.known.seen_offset is None and result.known.user is None
    assert result.known.population.actions(EVERYTHING) == ["open"]


def test_no_time_for_a_read_is_a_timeout() -> None:
    result = Context(FakeReader(), ManualClock()).late(asked())
    assert result.degraded == (Degraded.FEATURES_TIMEOUT,)
