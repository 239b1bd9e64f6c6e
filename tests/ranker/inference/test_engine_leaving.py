"""A client that leaves costs nobody anything, and what he asked is not computed."""

from __future__ import annotations

import asyncio

from tests.ranker.inference.engine_fakes import in_loop, staged, turns


@in_loop
async def test_a_client_that_left_is_not_computed() -> None:
    stage = await staged()
    stage.offer(0)
    await turns()
    leaving = [stage.offer(number) for number in range(1, 65)]
    await turns()
    for future in leaving:
        future.cancel()
    await turns()
    assert stage.engine.metrics()["queued_tokens"] == 0
    await stage.finish()
    assert stage.model.ran == [[0]] and not stage.device.busy
    stage.at_rest()


@in_loop
async def test_a_client_that_leaves_between_dispatch_and_start_is_not_computed() -> None:
    stage = await staged()
    futures = [stage.offer(number) for number in range(3)]
    await turns()
    futures[1].cancel()
    await turns()
    await stage.finish()
    assert stage.model.ran == [[0, 2]]
    assert futures[2].result() == 4
    stage.at_rest()


@in_loop
async def test_a_client_that_cancels_in_the_turn_of_the_dispatch_is_not_computed() -> None:
    stage = await staged()
    future, other = stage.offer(1), stage.offer(2)
    future.cancel()  # the loop will say so only after the turn that dispatches
    await stage.run_all()
    assert stage.model.ran == [[2]] and other.result() == 4
    stage.at_rest()


@in_loop
async def test_one_cancel_in_a_running_batch_does_not_hang_the_rest() -> None:
    stage = await staged()
    futures = [stage.offer(number) for number in range(3)]
    stage.model.on_run = futures[0].cancel
    await stage.run_all()
    assert futures[0].cancelled() and [each.result() for each in futures[1:]] == [2, 4]
    stage.at_rest()


@in_loop
async def test_a_cancelled_task_leaves_through_submit() -> None:
    stage = await staged()
    stage.offer(0)
    await turns()
    task = asyncio.create_task(stage.engine.submit(stage.request(1), 1))
    await turns()
    task.cancel()
    await stage.run_all()
    assert stage.model.ran == [[0]] and task.cancelled()
    stage.at_rest()


@in_loop
async def test_healthy_traffic_goes_on_after_a_burst_of_clients_that_left() -> None:
    stage = await staged()
    for _ in range(20):
        futures = [stage.offer(number) for number in range(64)]
        await turns(2)
        for future in futures:
            future.cancel()
    await stage.run_all()
    healthy = stage.offer(4)
    await stage.run_all()
    assert healthy.result() == 8
    stage.at_rest()
