"""The second stage in a running service: a version that has one comes to score; what cannot leaves the light order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from features.events import InteractionEvent, encode_event, from_seconds
from features.memory_store import MemoryStore
from features.registry import FINGERPRINT
from ranker.answers import RankAnswer
from ranker.build import Running, Surroundings, build
from ranker.light_model import PLAIN, text_file, trees_file
from ranker.policy_config import PolicyConfig
from ranker.release.durable import replace_atomically
from ranker.release.registry import Registry
from ranker.second.config import SecondConfig, Sizes
from ranker.second.vocabulary import Known
from ranker.second.weights import VOCABULARY_FILE, known_from, to_files
from ranker.types import RankRequest
from tests.ranker.inference.loops import in_loop
from tests.ranker.online import ACTIONS, config_of, specs_of
from tests.ranker.second import made
from tests.ranker.test_light_model import text, trees

TRAINED = {"accept": True, "complete": True, "dismiss": True, "reuse": True}


def published(registry: Registry, seed: int = 0, broken: bool = False, sizes: Sizes = made.SIZES) -> str:
    """A version with both stages."""
    model = made.model(seed, sizes)
    if broken:
        model.net.outcomes.weight.data[0, 0] = float("nan")
    files, entry = to_files(model.net, model.vocabulary.values, SecondConfig(), TRAINED, light="1")
    light = {trees_file(PLAIN): trees(1, rounds=2), text_file(PLAIN): text(1.0)}
    return registry.publish({**light, **files}, schema=FINGERPRINT, kind="second", second=entry).version


async def started(tmp_path: Path, **config: Any) -> Running:
    around = Surroundings(environment={}, store=MemoryStore(), actions=specs_of(ACTIONS), look_s=0.01)
    return await build(config_of(tmp_path, **config), PolicyConfig(), around)


async def rank(running: Running, user: str = "u1", **fields: Any) -> RankAnswer:
    body = {"user": user, "context": {"surface": "chat", "locale": "en-GB"}, "budget_ms": 60_000.0, **fields}
    request = msgspec.convert(body, RankRequest)
    arrived_ms = running.service.ranking.clock.monotonic_ms()
    raw = msgspec.json.encode(body)
    return await running.service.rank(request, raw, caller="app", explain=True, arrived_ms=arrived_ms)


async def act(running: Running, count: int, user: str = "u1") -> None:
    now_s = running.service.ranking.clock.now_s()
    events = [
        InteractionEvent(id=f"{user}-{n}", time=from_seconds(now_s - 60.0 + n), user=user, session="s", type="typed")
        for n in range(count)
    ]
    answers = await running.service.ingest([encode_event(event) for event in events])
    assert all(answer.status == "accepted" for answer in answers)


async def until_scored(running: Running, version: str) -> RankAnswer:
    async with asyncio.timeout(30.0):
        while True:
            answer = await rank(running, traffic="probe")
            if answer.versions.get("second") == version:
                return answer
            await asyncio.sleep(0.02)


@in_loop
async def test_a_version_with_a_second_stage_ranks_by_it_and_the_log_says_so(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "models")
    version = published(registry)
    registry.activate(version, override="a test")
    running = await started(tmp_path)
    await act(running, 20)
    answer = await until_scored(running, version)
    assert answer.degraded == [] and answer.items
    assert running.memory  # listed for /v1/memory
    logged = await rank(running, id="r1")
    scores = [item.score for item in logged.items]
    assert scores == sorted(scores, reverse=True) and logged.versions["second"] == version
    status = running.service.status()["second"]
    assert status["version"] == version and status["engine"]["pages"]["tokens_new"] > 0
    await running.close()
    assert not running.memory


@in_loop
async def test_a_user_without_history_is_ranked_by_light_and_is_no_degradation(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "models")
    version = published(registry)
    registry.activate(version, override="a test")
    running = await started(tmp_path)
    await act(running, 3)
    await until_scored(running, version)
    answer = await rank(running, user="new", traffic="probe")
    assert "second" not in answer.versions and answer.degraded == []
    assert all("second:cold" in (item.reasons or []) for item in answer.items)
    await running.close()


@in_loop
async def test_without_time_for_it_the_light_order_stands(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "models")
    version = published(registry)
    registry.activate(version, override="a test")
    running = await started(tmp_path, second={"reserve_ms": 10_000.0})
    await act(running, 3)
    await until_scored(running, version)
    answer = await rank(running, budget_ms=5_000.0)
    assert answer.degraded == ["second:budget"] and answer.items
    await running.close()


@in_loop
async def test_weights_that_are_not_finite_never_serve_and_the_light_stage_goes_on(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "models")
    registry.activate(published(registry, broken=True), override="a test")
    running = await started(tmp_path)
    await act(running, 3)
    async with asyncio.timeout(20.0):
        while not running.service.status()["second"].get("failures"):
            await asyncio.sleep(0.02)
    answer = await rank(running)
    assert answer.items and "second" not in answer.versions and answer.versions["light"]
    await running.close()


@in_loop
async def test_a_second_stage_that_could_not_be_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, left = Registry(tmp_path / "models"), iter([OSError(5, "Input/output error")])

    def known(*args: Any) -> Known:
        for error in left:
            raise error
        return known_from(*args)

    monkeypatch.setattr("ranker.second.desk.known_from", known)
    version = published(registry)
    registry.activate(version, override="a test")
    running = await started(tmp_path)
    await act(running, 3)
    assert (await until_scored(running, version)).versions["second"] == version
    assert (running.service.status()["second"]["failures"], running.service.status()["second"]["loads"]) == (1, 1)
    await running.close()


@pytest.mark.parametrize("fault", ["not finite", "tokens", "shard", "vocabulary", "ablated"])
@in_loop
async def test_a_version_that_cannot_be_used_is_refused_and_the_one_before_goes_on_with_both_stages(
    tmp_path: Path, fault: str
) -> None:
    registry = Registry(tmp_path / "models")
    good = published(registry)
    registry.activate(good, override="a test")
    running = await started(tmp_path)
    await act(running, 12)
    before = await until_scored(running, good)
    replace_atomically(registry.folder / "active", f"{published_with(registry, fault)}\n".encode())
    async with asyncio.timeout(20.0):
        while "refused" not in running.service.models():
            await asyncio.sleep(0.02)
    assert running.service.models()["serving"] == good
    for _ in range(5):
        answer = await rank(running, traffic="probe")
        assert (answer.versions, answer.degraded) == (before.versions, [])
        await asyncio.sleep(0.01)
    assert running.service.status()["second"]["version"] == good
    assert running.service.status()["second"]["failures"] == 0
    await running.close()


def published_with(registry: Registry, fault: str) -> str:
    """A version whose second stage has a fault."""
    if fault == "not finite":
        return published(registry, broken=True)
    model, replace = made.model(3), msgspec.structs.replace
    files, entry = to_files(model.net, model.vocabulary.values, SecondConfig(), TRAINED, light="1")
    light = {trees_file(PLAIN): trees(1, rounds=2), text_file(PLAIN): text(1.0)}
    if fault == "shard":
        files[entry.shards[0]] = files[entry.shards[0]][:-9]
    elif fault == "vocabulary":
        files[VOCABULARY_FILE] = b"{}"
    else:
        entry = replace(entry, tokens=99) if fault == "tokens" else replace(entry, without=["text"])
    return registry.publish({**light, **files}, schema=FINGERPRINT, kind="second", second=entry).version


@in_loop
async def test_another_version_takes_over_without_a_request_that_fails(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "models")
    first = published(registry, seed=0)
    registry.activate(first, override="a test")
    running = await started(tmp_path)
    await act(running, 12)
    await until_scored(running, first)
    second = published(registry, seed=5)
    registry.activate(second, override="a test")
    seen: set[str] = set()
    async with asyncio.timeout(30.0):
        while second not in seen:
            answer = await rank(running, traffic="probe")
            assert answer.items and set(answer.degraded) <= {"second:loading"}
            seen.add(answer.versions.get("second", ""))
            await asyncio.sleep(0.005)
    assert first in seen or "" in seen
    await running.close()


@in_loop
async def test_what_is_forgotten_is_gone_from_pages_and_windows(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "models")
    version = published(registry)
    registry.activate(version, override="a test")
    running = await started(tmp_path)
    await act(running, 20)
    await until_scored(running, version)
    await running.service.forget("u1")
    answer = await rank(running, traffic="probe")
    assert "second" not in answer.versions and all("second:cold" in (item.reasons or []) for item in answer.items)
    engine = running.service.status()["second"]["engine"]
    assert engine["pages"]["full"]["cached"] == 0 and engine["pages"]["tail"]["cached"] == 0
    await running.close()


def test_the_scores_are_those_of_the_model_that_was_published() -> None:
    """The paged model's own tests compare it with the oracle; here only that utility is monotone in its logits."""
    model = made.model()
    low, high = model.utility(np.full((1, 4), -1.0)), model.utility(np.array([[-1.0, 2.0, -1.0, -1.0]]))
    assert float(high[0]) > float(low[0])
