"""A batch that fails, pages that are not to be had, a request that grew: each caller is told what became of his own."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ranker.inference.engine import EngineConfig, ModelFailed
from ranker.inference.memory_errors import PagesBusy
from ranker.inference.request import Request
from tests.ranker.inference.engine_fakes import Echo, Stage, in_loop, reason, run, staged, turns


@in_loop
async def test_a_poisoned_request_fails_alone() -> None:
    stage = await staged(Echo(poison={5}))
    futures = [stage.offer(number, 5000.0) for number in range(16)]
    await stage.run_all()
    assert isinstance(futures[5].exception(), ModelFailed)
    assert [future.result() for future in futures if future is not futures[5]] == [
        2 * number for number in range(16) if number != 5
    ]
    assert len(stage.model.ran) <= 9  # 2·log2(16) + 1
    stage.at_rest()


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 15), max_size=16))
def test_whatever_is_poisoned_everyone_is_told_and_the_runs_are_bounded(poison: set[int]) -> None:
    async def test() -> None:
        stage = await staged(Echo(poison=poison), limits=EngineConfig(most_runs=12))
        futures = [stage.offer(number, 5000.0) for number in range(16)]
        await stage.run_all()
        assert all(future.done() for future in futures)
        answered = {number for number, future in enumerate(futures) if future.exception() is None}
        assert not answered & poison
        if len(poison) == 1:
            assert answered == set(range(16)) - poison
        assert len(stage.model.ran) <= 24
        stage.at_rest()

    run(test())


@in_loop
async def test_a_failed_batch_is_not_run_again_for_who_would_be_late() -> None:
    stage = await staged(Echo(poison={0}))
    urgent, patient, spare = stage.offer(0, 25.0), stage.offer(1, 29.0), stage.offer(2, 500.0)
    stage.model.on_run = lambda: setattr(stage.time, "now_ms", stage.time.now_ms + 10.0)
    await turns()
    await stage.device.finish()  # all fail at 10 ms, the first alone by 20, so the others would end at 30
    assert isinstance(urgent.exception(), ModelFailed)
    assert reason(patient) == "deadline" and spare.result() == 4
    assert all(1 not in part for part in stage.model.ran[1:])
    stage.at_rest()


@in_loop
async def test_a_failed_batch_teaches_the_scheduler_nothing() -> None:
    stage = await staged(Echo(poison={1}))
    before = stage.engine.metrics()["cost_ms"]
    future = stage.offer(1, 5000.0)
    await turns()
    await stage.finish(took_ms=900.0)
    assert isinstance(future.exception(), ModelFailed)
    assert stage.engine.metrics()["cost_ms"] == before


def test_a_model_that_gives_too_few_results_fails_its_batch() -> None:
    class Short(Echo):
        def run(self, members: Any, workspace: Any) -> Any:
            return []

    async def test() -> None:
        stage = await staged(Short())
        future = stage.offer(1)
        await stage.run_all()
        assert "0 results for 1" in str(future.exception())
        stage.at_rest()

    run(test())


def test_a_model_that_exits_does_not_take_the_device_with_it() -> None:
    class Leaving(Echo):
        def run(self, members: Any, workspace: Any) -> Any:
            if members[0].payload == 0:
                raise SystemExit
            return super().run(members, workspace)

    async def test() -> None:
        stage = await staged(Leaving())
        future = stage.offer(0)
        await stage.run_all()
        assert isinstance(future.exception(), ModelFailed)
        after = stage.offer(3)
        await stage.run_all()
        assert after.result() == 6
        stage.at_rest()

    run(test())


class Pinning(Echo):
    """Its requests hold pages of an arena of four; what they cost changes behind the engine's back."""

    def __init__(self, needs: dict[Any, int], costs: dict[Any, int] | None = None) -> None:
        super().__init__()
        self.needs, self.costs, self.pinned = needs, costs or {}, 0

    def hold(self, payload: Any) -> Any:
        need = self.needs.get(payload, 1)
        if self.pinned + need > 4:
            raise PagesBusy("full", need, 4 - self.pinned)
        self.pinned += need
        return Pin(self, need, self.costs.get(payload, 1))


class Pin:
    def __init__(self, model: Pinning, need: int, tokens: int) -> None:
        self.model, self.need, self.tokens = model, need, tokens

    def release(self) -> None:
        self.model.pinned -= self.need


def pinning(stage: Stage) -> Pinning:
    model = stage.model
    assert isinstance(model, Pinning)
    return model


@in_loop
async def test_who_finds_the_pages_in_use_goes_back_to_the_queue_and_runs_next() -> None:
    stage = await staged(Pinning({0: 3, 1: 3, 2: 1}))
    futures = [stage.offer(number) for number in range(3)]
    await stage.run_all()
    assert [future.result() for future in futures] == [0, 2, 4]
    assert stage.model.ran == [[0, 2], [1]]
    assert pinning(stage).pinned == 0
    stage.at_rest()


@in_loop
async def test_a_request_that_never_gets_its_pages_is_rejected_and_does_not_loop_for_ever() -> None:
    stage = await staged(Pinning({7: 5}), limits=EngineConfig(most_returns=3))
    future = stage.offer(7, 10_000.0)
    await stage.run_all()
    assert reason(future) == "busy" and stage.model.ran == []
    assert len(stage.device.begun) == 4
    stage.at_rest()


@in_loop
async def test_a_request_whose_pages_left_is_scheduled_again_with_what_it_costs_now() -> None:
    stage = await staged(Pinning(dict.fromkeys(range(10), 0), costs={1: 12}))  # it said 1
    futures = [stage.offer(number) for number in range(10)]
    await stage.run_all()
    assert [future.result() for future in futures] == [2 * number for number in range(10)]
    assert 1 not in stage.model.ran[0] and 1 in stage.model.ran[1]
    assert stage.device.begun[1].batch.tokens == 12
    stage.at_rest()


@in_loop
async def test_a_request_that_grew_beyond_a_batch_is_rejected() -> None:
    stage = await staged(Pinning({}, costs={1: 17}))
    future = stage.offer(1)
    await stage.run_all()
    assert reason(future) == "too_large"
    stage.at_rest()


@in_loop
async def test_pins_are_released_when_the_batch_fails() -> None:
    stage = await staged(Pinning({}))
    stage.model.poison = {1}
    futures = [stage.offer(number) for number in range(4)]
    await stage.run_all()
    assert isinstance(futures[1].exception(), ModelFailed) and pinning(stage).pinned == 0
    stage.at_rest()


@in_loop
async def test_what_ran_teaches_not_what_was_planned() -> None:
    stage = await staged(Pinning({}, costs={1: 2}))
    request = Request("big", "m@1", 16, stage.time.now_ms, stage.time.now_ms + 500.0)
    future = stage.engine.offer(request, 1)
    await turns()
    await stage.finish(took_ms=30.0)
    assert future.result() == 2
    cost = stage.engine.metrics()["cost_ms"]["m@1"]
    assert cost["one"] > 10.0  # 30 ms were for 2 tokens, not for 16
