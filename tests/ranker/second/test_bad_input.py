"""What nobody should send, in a running service: it is ranked all the same, and nothing fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from features.events import InteractionEvent, encode_event, from_seconds
from ranker.build import Running
from ranker.release.registry import Registry
from ranker.second.config import BASE, SMALL, Sizes
from tests.ranker.inference.loops import in_loop
from tests.ranker.second import made
from tests.ranker.second.test_desk import act, published, rank, started, until_scored

LONG = 10_000


async def serving(tmp_path: Path, sizes: Sizes = made.SIZES, **config: Any) -> tuple[Running, str]:
    """A service whose version has a second stage of these sizes, and that version."""
    registry = Registry(tmp_path / "models")
    version = published(registry, sizes=sizes)
    registry.activate(version, override="a test")
    running = await started(tmp_path, **config)
    await act(running, 20)
    await until_scored(running, version)
    return running, version


async def did(running: Running, count: int, user: str, spread_s: float = 1.0, **fields: Any) -> None:
    """So much, of the last hours."""
    now_s = running.service.ranking.clock.now_s()
    times = [now_s - 60.0 - spread_s * (count - number) for number in range(count)]
    events = [
        InteractionEvent(id=f"{user}.{number}", time=from_seconds(at_s), user=user, session="s", **fields)
        for number, at_s in enumerate(times)
    ]
    for start in range(0, count, 1000):
        answers = await running.service.ingest([encode_event(event) for event in events[start : start + 1000]])
        assert all(answer.status == "accepted" for answer in answers)


@pytest.mark.parametrize("sizes", [SMALL, BASE], ids=["small", "base"])
@in_loop
async def test_both_shipped_sizes_serve_as_configured(tmp_path: Path, sizes: Sizes) -> None:
    running, version = await serving(tmp_path, sizes)
    answer = await rank(running)
    assert (answer.degraded, answer.versions["second"]) == ([], version)
    pages = running.service.status()["second"]["engine"]["pages"]
    assert pages["tokens_new"] > 0
    await running.close()


@pytest.mark.parametrize(
    "fields",
    [{"type": "typed", "action": "withdrawn long ago"}, {"type": "nobody knows it", "text": "words nobody knows"}],
    ids=["a deleted action", "an unknown type"],
)
@in_loop
async def test_what_the_model_does_not_know_is_read_as_unknown(tmp_path: Path, fields: dict[str, Any]) -> None:
    running, version = await serving(tmp_path)
    await did(running, 30, "strange", **fields)
    answer = await rank(running, user="strange")
    assert (answer.degraded, answer.versions["second"]) == ([], version)
    await running.close()


@in_loop
async def test_events_of_equal_times_are_ranked_by(tmp_path: Path) -> None:
    running, version = await serving(tmp_path)
    await did(running, 40, "at once", spread_s=0.0, type="typed")
    first, again = [await rank(running, user="at once", traffic="probe") for _ in range(2)]
    assert (first.degraded, first.versions["second"]) == ([], version)
    assert [item.score for item in first.items] == pytest.approx([item.score for item in again.items], abs=1e-3)
    await running.close()


@in_loop
async def test_ten_thousand_events_are_ranked_by_and_few_of_them_kept(tmp_path: Path) -> None:
    running, version = await serving(tmp_path)
    await did(running, LONG, "busy", type="typed", action="share")
    async with asyncio.timeout(20.0):
        while (answer := await rank(running, user="busy", traffic="probe")).degraded:
            await asyncio.sleep(0.02)
    assert answer.versions["second"] == version
    assert running.service.status()["second"]["happenings"] < 200
    await running.close()


@in_loop
async def test_500_candidates_are_ranked_with_and_without_a_history(tmp_path: Path) -> None:
    running, version = await serving(tmp_path, max_candidates=500)
    many = [{"action": "share", "target": f"image:{number}"} for number in range(500)]
    known = await rank(running, candidates=many, k=50)
    assert (known.degraded, known.versions["second"], len(known.items)) == ([], version, 50)
    cold = await rank(running, user="new", candidates=many, k=50)
    assert cold.degraded == [] and "second" not in cold.versions and len(cold.items) == 50
    assert all("second:cold" in (item.reasons or []) for item in cold.items)
    await running.close()


@in_loop
async def test_who_had_to_leave_memory_is_ranked_by_all_he_did(tmp_path: Path) -> None:
    running, version = await serving(tmp_path, second={"max_happenings": 1000})
    await did(running, 30, "away", type="typed")
    for number in range(70):
        await did(running, 30, f"other{number}", type="typed")
    async with asyncio.timeout(20.0):
        while (answer := await rank(running, user="away", traffic="probe")).degraded:
            await asyncio.sleep(0.02)
    assert answer.versions["second"] == version
    status = running.service.status()["second"]
    assert status["users_left"] > 0 and status["users_back"] == 1 and status["users_lost"] == 0
    await running.close()
