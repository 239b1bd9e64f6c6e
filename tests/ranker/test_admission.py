"""Admission: few at once, the earliest deadline first, and nobody let in who would be answered too late."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from ranker.admission import READ_ONE_IN, Admission
from ranker.clock import ManualClock
from ranker.errors import Overloaded
from ranker.types import RankRequest
from tests.ranker.online import run


def asking(budget_ms: float | None = None, **fields: Any) -> RankRequest:
    return msgspec.convert({"user": "u", "context": {}, "budget_ms": budget_ms, **fields}, RankRequest)


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_so_many_run_at_once_and_the_next_waits_until_one_leaves() -> None:
    async def work() -> None:
        admission = Admission(ManualClock(), at_once=2)
        await admission.enter(asking(), 0.0)
        await admission.enter(asking(), 0.0)
        third = asyncio.create_task(admission.enter(asking(), 0.0))
        await settled()
        assert not third.done()
        admission.leave()
        await third

    run(work())


def test_the_earliest_deadline_goes_first() -> None:
    async def work() -> None:
        admission, order = Admission(ManualClock(), at_once=1), list[str]()
        await admission.enter(asking(), 0.0)

        async def one(name: str, **fields: Any) -> None:
            await admission.enter(asking(**fields), 0.0)
            order.append(name)
            admission.leave()

        tasks = [
            asyncio.create_task(one("patient", budget_ms=5000.0)),
            asyncio.create_task(one("normal")),
            asyncio.create_task(one("premium", priority="premium")),
        ]
        await settled()
        admission.leave()
        await asyncio.gather(*tasks)
        assert order == ["premium", "normal", "patient"]

    run(work())


def test_who_would_be_answered_too_late_is_refused_when_he_comes() -> None:
    async def work() -> None:
        admission = Admission(ManualClock(), at_once=1)
        admission.each_ms = 20.0
        await admission.enter(asking(), 0.0)
        waiting = asyncio.create_task(admission.enter(asking(budget_ms=100.0), 0.0))
        await settled()
        with pytest.raises(Overloaded, match="2 requests are ahead"):
            await admission.enter(asking(budget_ms=100.0), 0.0)
        assert admission.refused == 1
        admission.leave()
        await waiting

    run(work())


def test_who_has_become_too_late_is_refused_when_his_turn_comes_and_the_next_goes() -> None:
    async def work() -> None:
        clock = ManualClock()
        admission = Admission(clock, at_once=1)
        await admission.enter(asking(), 0.0)
        late = asyncio.create_task(admission.enter(asking(budget_ms=50.0), 0.0))
        patient = asyncio.create_task(admission.enter(asking(budget_ms=500.0), 0.0))
        await settled()
        clock.advance(0.08)
        admission.leave()
        with pytest.raises(Overloaded, match="too late"):
            await late
        await patient

    run(work())


def test_too_many_waiting_are_refused_before_anything_is_read() -> None:
    async def work() -> None:
        admission = Admission(ManualClock(), at_once=1, most_waiting=2)
        await admission.enter(asking(), 0.0)
        waiting = [asyncio.create_task(admission.enter(asking(), 0.0)) for _ in range(2)]
        await settled()
        assert admission.is_full()
        for _ in waiting:
            admission.leave()
        await asyncio.gather(*waiting)
        assert not admission.is_full()

    run(work())


def test_who_would_be_refused_anyway_is_refused_unread_but_for_one_in_so_many_who_may_be_more_patient() -> None:
    async def work() -> None:
        admission = Admission(ManualClock(), at_once=1)
        admission.each_ms = 10.0
        assert not admission.is_full()
        await admission.enter(asking(), 0.0)
        waiting = [asyncio.create_task(admission.enter(asking(budget_ms=100.0), 0.0)) for _ in range(4)]
        await settled()
        assert [admission.is_full() for _ in range(2 * READ_ONE_IN)].count(False) == 2
        patient = asyncio.create_task(admission.enter(asking(budget_ms=1000.0), 0.0))
        await settled()
        assert not admission.is_full(), "now there is reason to believe that others would wait as well"
        for _ in range(300):
            with pytest.raises(Overloaded):
                await admission.enter(asking(budget_ms=100.0), 0.0)
        assert admission.is_full(), "nobody else would"
        for _ in (*waiting, patient):
            admission.leave()
        await asyncio.gather(*waiting, patient)

    run(work())


def test_how_long_each_takes_is_learned_from_the_gaps_while_others_wait() -> None:
    async def work() -> None:
        clock = ManualClock()
        admission = Admission(clock, at_once=2, most_waiting=1000)
        waiting = [asyncio.create_task(admission.enter(asking(budget_ms=60_000.0), 0.0)) for _ in range(200)]
        for _ in waiting:
            await settled()
            clock.advance(0.007)
            admission.leave()
        await asyncio.gather(*waiting)
        assert admission.each_ms == pytest.approx(7.0, rel=0.01)

    run(work())


def test_a_stall_is_forgotten_though_it_left_nobody_waiting() -> None:
    async def work() -> None:
        clock = ManualClock()
        admission = Admission(clock, at_once=2)
        admission.each_ms = 500.0
        await admission.enter(asking(), 0.0)
        await admission.enter(asking(), 0.0)
        with pytest.raises(Overloaded):
            await admission.enter(asking(), clock.monotonic_ms())
        for _ in range(200):
            clock.advance(0.002)
            admission.leave()
            await admission.enter(asking(), clock.monotonic_ms())
        assert admission.each_ms == pytest.approx(2.0, rel=0.05)
        waiting = asyncio.create_task(admission.enter(asking(), clock.monotonic_ms()))
        await settled()
        admission.leave()
        await waiting

    run(work())


@pytest.mark.parametrize("seed", range(5))
def test_in_any_order_of_coming_leaving_and_giving_up_every_turn_is_given_back(seed: int) -> None:
    async def work() -> None:
        clock, draw = ManualClock(), random.Random(seed)
        admission = Admission(clock, at_once=3, most_waiting=20)
        ended, running = list[str](), 0

        async def one() -> None:
            nonlocal running
            if admission.is_full():
                ended.append("refused")
                return
            try:
                await admission.enter(asking(budget_ms=draw.choice([5.0, 20.0, 500.0])), clock.monotonic_ms())
            except Overloaded:
                ended.append("refused")
                return
            running += 1
            assert running <= 3
            try:
                for _ in range(draw.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                running -= 1
                admission.leave()
            ended.append("answered")

        tasks = []
        for _ in range(300):
            tasks.append(asyncio.create_task(one()))
            clock.advance(draw.random() * 0.002)
            if draw.random() < 0.2:
                draw.choice(tasks).cancel()
            if draw.random() < 0.5:
                await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        cancelled = sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert len(ended) + cancelled == 300 and "answered" in ended
        for _ in range(3):
            await asyncio.wait_for(admission.enter(asking(), clock.monotonic_ms()), 1.0)

    run(work())
