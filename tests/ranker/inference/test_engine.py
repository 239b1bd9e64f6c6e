"""The engine on a manual device and clock: every caller gets an answer or a reason, in time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranker.inference.engine import DeviceStuck, EngineConfig, Rejected
from ranker.inference.memory_errors import HistoryTooLong, InvalidSize
from ranker.inference.scheduler import Request, SchedulerConfig
from tests.ranker.inference.engine_fakes import Echo, in_loop, reason, run, staged, turns


@in_loop
async def test_a_burst_becomes_one_batch_and_each_caller_gets_his_own_result() -> None:
    stage = await staged()
    futures = [stage.offer(number) for number in range(5)]
    await turns()
    await stage.finish()
    assert [future.result() for future in futures] == [0, 2, 4, 6, 8]
    assert stage.model.ran == [[0, 1, 2, 3, 4]]
    stage.at_rest()


@in_loop
async def test_submit_awaits_the_result() -> None:
    stage = await staged()
    task = asyncio.create_task(stage.engine.submit(stage.request(21), 21))
    await turns()
    await stage.finish()
    assert await task == 42


@in_loop
async def test_the_next_batch_starts_before_the_answers_of_the_last_are_heard() -> None:
    stage = await staged(config=SchedulerConfig(max_batch_tokens=2, max_batch_requests=2))
    heard: list[int] = []
    for number in range(3):
        stage.offer(number).add_done_callback(lambda _: heard.append(len(stage.device.begun)))
    await turns()
    await stage.finish()
    assert heard == [2, 2]
    await stage.finish()
    stage.at_rest()


@in_loop
async def test_expiry_does_not_wait_for_the_running_batch() -> None:
    stage = await staged()
    stage.offer(0, 1000.0)
    await turns()
    future = stage.offer(1, 50.0)
    await stage.time.advance(60.0)  # the batch was to take 10 ms and still runs
    assert reason(future) == "deadline" and stage.device.busy
    await stage.device.finish()
    stage.at_rest()


@in_loop
async def test_what_cannot_end_in_time_is_rejected_at_once_with_a_time_to_retry() -> None:
    stage = await staged(config=SchedulerConfig(max_batch_tokens=1, max_batch_requests=1))
    kept = [stage.offer(number, 205.0) for number in range(20)]  # 20 batches of 10 ms, 1 ms of margin
    late = stage.offer(99, 205.0)
    error = late.exception()
    assert isinstance(error, Rejected) and error.reason == "deadline" and error.retry_after_ms > 0
    await stage.run_all()
    assert all(future.result() == 2 * number for number, future in enumerate(kept))
    stage.at_rest()


@in_loop
async def test_a_budget_of_0_is_a_budget() -> None:
    stage = await staged()
    assert reason(stage.offer(1, 0.0)) == "deadline"
    stage.at_rest()


@in_loop
async def test_a_result_that_ends_late_is_not_given_out_as_if_it_were_in_time() -> None:
    stage = await staged()
    future = stage.offer(1, 50.0)
    await turns()
    await stage.finish(took_ms=51.0)
    assert reason(future) == "deadline"
    assert stage.engine.metrics()["late"] == 1
    stage.at_rest()


@in_loop
async def test_a_full_queue_refuses_and_blocks_nobody() -> None:
    stage = await staged(config=SchedulerConfig(max_batch_tokens=4, max_batch_requests=4, max_queue_requests=8))
    futures = [stage.offer(number, 1000.0) for number in range(20)]
    assert [future.done() for future in futures].count(True) == 12
    assert {reason(future) for future in futures if future.done()} == {"queue_full"}
    await stage.run_all()
    assert sum(future.exception() is None for future in futures) == 8
    stage.at_rest()


@in_loop
async def test_a_victim_of_the_queue_bound_is_told_though_another_was_offered() -> None:
    stage = await staged(config=SchedulerConfig(max_queue_requests=1))
    shadow = stage.offer(1, priority="shadow")
    premium = stage.offer(2, priority="premium")
    assert reason(shadow) == "queue_full"
    await stage.run_all()
    assert premium.result() == 4
    stage.at_rest()


@in_loop
async def test_steady_premium_does_not_starve_normal() -> None:
    stage = await staged(config=SchedulerConfig(max_batch_tokens=8, max_batch_requests=8))
    normal = [stage.offer(number, 200.0) for number in range(4)]
    await turns()
    for _ in range(5):
        for number in range(16):
            stage.offer(100 + number, 60.0, priority="premium").add_done_callback(lambda future: future.exception())
        await stage.finish()
    assert all(future.done() and future.exception() is None for future in normal)
    await stage.run_all()
    stage.at_rest()


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"token_budget": -1}, "invalid"),
        ({"token_budget": float("nan")}, "invalid"),
        ({"arrival_ms": float("nan")}, "invalid"),
        ({"deadline_ms": 0.0}, "invalid"),
        ({"request_id": ["unhashable"]}, "invalid"),
        ({"model_key": "m@9"}, "unknown_model"),
        ({"token_budget": 17}, "too_large"),
    ],
    ids=lambda value: str(value),
)
@in_loop
async def test_bad_input_is_refused_with_its_reason(fields: dict[str, Any], word: str) -> None:
    stage = await staged()
    good = {"request_id": "x", "model_key": "m@1", "token_budget": 1, "arrival_ms": 900.0, "deadline_ms": 1500.0}
    assert reason(stage.engine.offer(Request(**{**good, **fields}), 1)) == word
    stage.at_rest()


@in_loop
async def test_the_same_id_twice_at_once_is_a_duplicate_and_later_it_is_not() -> None:
    stage = await staged()
    first = stage.offer(1, request_id="same")
    assert reason(stage.offer(2, request_id="same")) == "duplicate"
    await turns()
    assert reason(stage.offer(2, request_id="same")) == "duplicate"  # it runs
    await stage.finish()
    again = stage.offer(3, request_id="same")
    await stage.run_all()
    assert (first.result(), again.result()) == (2, 6)
    stage.at_rest()


@pytest.mark.parametrize(("error", "word"), [(HistoryTooLong(9, 4), "too_large"), (InvalidSize("odd"), "invalid")])
@in_loop
async def test_what_the_model_says_can_never_run_is_refused_before_it_is_queued(error: Exception, word: str) -> None:
    def refuse(payload: Any) -> int:
        raise error

    stage = await staged(Echo(tokens=refuse))
    with pytest.raises(Rejected) as raised:
        stage.request(1)
    assert raised.value.reason == word
    stage.at_rest()


@in_loop
async def test_a_device_that_hangs_is_reported_and_nobody_waits_for_it() -> None:
    stage = await staged(limits=EngineConfig(stuck_after_ms=200.0))
    running = stage.offer(1, 10_000.0)
    await turns()
    queued = stage.offer(2, 10_000.0)
    await stage.time.advance(250.0)
    assert isinstance(running.exception(), DeviceStuck) and reason(queued) == "stuck"
    assert not stage.engine.healthy and reason(stage.offer(3)) == "stuck"
    await stage.device.finish()  # it comes back
    assert stage.engine.healthy
    after = stage.offer(4)
    await stage.run_all()
    assert after.result() == 8
    stage.at_rest()


@in_loop
async def test_a_batch_that_is_slow_but_predicted_to_be_is_not_taken_to_hang() -> None:
    stage = await staged(limits=EngineConfig(stuck_after_ms=20.0, stuck_factor=10.0))
    future = stage.offer(1, 10_000.0)
    await turns()
    await stage.time.advance(95.0)  # 10 ms were predicted
    await stage.device.finish()
    assert future.result() == 2 and stage.engine.healthy


@in_loop
async def test_a_window_counts_from_the_arrival_and_a_held_batch_goes_when_it_is_over() -> None:
    stage = await staged(config=SchedulerConfig(max_batch_tokens=16, max_batch_requests=16, max_wait_ms=3.0))
    for _ in range(40):  # arrivals 1 ms apart: with 10 ms a batch, waiting pays
        stage.offer(0, 1000.0)
        await stage.time.advance(1.0)
        if stage.device.busy and stage.time.now_ms % 10 == 0:
            await stage.device.finish()
    await stage.run_all()
    arrived = stage.time.now_ms
    last = stage.offer(1, 1000.0)
    await turns()
    while not stage.device.busy:
        await stage.time.advance(0.5)
        assert stage.time.now_ms <= arrived + 3.5
    await stage.finish()
    assert last.result() == 2


@in_loop
async def test_closing_ends_what_was_let_in_and_refuses_the_rest() -> None:
    stage = await staged()
    futures = [stage.offer(number, 1000.0) for number in range(20)]
    await turns()
    closing = asyncio.create_task(stage.engine.close())
    await turns()
    assert reason(stage.offer(99)) == "closing"
    await stage.run_all()
    await closing
    assert [future.result() for future in futures] == [2 * number for number in range(20)]
    assert stage.device.closed and stage.engine.metrics()["versions"] == {}
    stage.at_rest()


@in_loop
async def test_closing_does_not_wait_longer_than_it_may() -> None:
    stage = await staged(limits=EngineConfig(drain_ms=10.0, stuck_after_ms=10.0))
    futures = [stage.offer(number, 1000.0) for number in range(20)]
    await turns()
    await stage.engine.close()  # the device never ends its batch
    assert isinstance(futures[0].exception(), DeviceStuck) and reason(futures[19]) == "closing"
    assert stage.engine.open_requests == 0


@in_loop
async def test_the_figures_are_plain_and_add_up() -> None:
    stage = await staged(Echo(poison={3}))
    futures = [stage.offer(number) for number in range(8)]
    futures[0].cancel()
    await stage.run_all()
    stage.offer(1, 0.0).add_done_callback(lambda future: future.exception())
    figures = json.loads(json.dumps(stage.engine.metrics()))
    assert figures["offered"] == 9 and figures["dispatched"] == 8
    assert figures["answered"] + figures["failed"] + figures["left"] + sum(figures["rejections"].values()) == 9
    assert figures["rejections"] == {"deadline": 1} and figures["late_share"] == 0
    assert figures["queued"] == {"premium": 0, "normal": 0, "shadow": 0}
    assert figures["pool"]["used_bytes"] == 4096 and figures["shards"] is None
    assert figures["batch_requests"]["max"] == 8 and figures["versions"] == {"m@1": "serving"}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["offer", "cancel", "pass", "finish"]), st.integers(0, 40)), max_size=60))
def test_whatever_happens_every_caller_is_settled_once_and_in_time(steps: list[tuple[str, int]]) -> None:
    async def test() -> None:
        stage = await staged(Echo(poison={13}), SchedulerConfig(max_batch_tokens=4, max_batch_requests=4))
        futures: list[asyncio.Future[Any]] = []
        late: list[float] = []
        for step, number in steps:
            if step == "offer":
                deadline = stage.time.now_ms + 3.0 * number
                future = stage.offer(number, 3.0 * number, priority=("premium", "normal", "shadow")[number % 3])

                def heard(future: asyncio.Future[Any], deadline: float = deadline) -> None:
                    if not future.cancelled() and future.exception() is None and stage.time.now_ms > deadline:
                        late.append(deadline)

                future.add_done_callback(heard)
                futures.append(future)
            elif step == "cancel" and futures:
                futures[number % len(futures)].cancel()
            elif step == "pass":
                await stage.time.advance(float(number))
            elif step == "finish" and stage.device.busy:
                await stage.device.finish()
        await stage.time.advance(1.0)
        await stage.run_all()
        await stage.time.advance(200.0)
        assert all(future.done() for future in futures) and not late
        stage.at_rest()

    run(test())


@in_loop
async def test_a_caller_who_asks_again_as_soon_as_he_hears_is_served_next() -> None:
    stage = await staged()
    again: list[asyncio.Future[Any]] = []
    first = stage.offer(1)
    first.add_done_callback(lambda _: again.append(stage.offer(2)))
    await turns()
    await stage.finish()
    assert first.result() == 2 and stage.device.busy
    await stage.finish()
    assert again[0].result() == 4
    stage.at_rest()
