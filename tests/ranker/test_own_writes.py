"""What was acknowledged binds the next ranking of the same process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from features.memory_store import MemoryStore
from features.store import Commit, Snapshot
from ranker.errors import NotFound, ServiceUnavailable
from ranker.own_writes import OwnWrites
from tests.ranker.online import Desk, run, service, specs_of

STALE = "features:stale"
UNKNOWN = [STALE, "policy:unavailable"]
CANDIDATES = [{"action": "share"}, {"action": "learn"}]


class SlowStore(MemoryStore):
    """Commits when the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def commit(self, commit: Commit) -> None:
        await self.gate.wait()
        await super().commit(commit)

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        await asyncio.sleep(0)
        return await super().read(keys, timeout_ms)


async def offered(desk: Desk, **fields: str) -> tuple[set[str], list[str]]:
    answer = await desk.rank("app", False, candidates=CANDIDATES, **fields)
    return {item.action for item in answer.items}, answer.degraded


def consent(given: bool) -> dict[str, object]:
    return {"event": "user", "fields": {"consents": ["ads"] if given else []}}


def test_a_consent_that_was_withdrawn_is_gone_from_the_next_ranking(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path, actions={"share": {"consent": "ads"}, "learn": {}}) as desk:
            for _ in range(20):
                await desk.post(consent(True))
                assert await offered(desk) == ({"share", "learn"}, [])
                await desk.post(consent(False))
                assert await offered(desk) == ({"learn"}, [])

    run(work())


def test_while_the_store_is_behind_on_a_person_he_counts_as_unknown_and_others_do_not(tmp_path: Path) -> None:
    async def work() -> None:
        store = SlowStore()
        async with service(tmp_path, store=store, actions={"share": {"consent": "ads"}, "learn": {}}) as desk:
            await desk.post(consent(True), {**consent(True), "user": "u2"})
            await desk.applied()
            store.gate.clear()
            assert [a.status for a in await desk.post(consent(True))] == ["accepted"], "durable is enough"
            assert await offered(desk) == ({"learn"}, UNKNOWN), "whatever was written may be a withdrawal"
            assert desk.rankings()[-1].seen_offset is None
            assert await offered(desk, user="u2") == ({"share", "learn"}, [])
            with pytest.raises(ServiceUnavailable):
                await desk.running.service.user("u1")
            store.gate.set()
            await desk.applied()
            assert await offered(desk) == ({"share", "learn"}, [])

    run(work())


def test_a_switch_off_is_in_effect_while_the_store_is_behind(tmp_path: Path) -> None:
    async def work() -> None:
        store = SlowStore()
        async with service(tmp_path, store=store) as desk:
            store.gate.clear()
            await desk.running.service.put_actions(specs_of({"share": {"off": True}}))
            assert await offered(desk) == ({"learn"}, [STALE])
            store.gate.set()

    run(work())


def test_a_change_of_the_catalogue_is_in_effect_for_features_when_it_returns(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            for number in range(10):
                await desk.running.service.put_actions(specs_of({"share": {"title": str(number)}}))
                assert (await desk.rank()).degraded == []
            await desk.running.service.delete_action("share")
            assert (await desk.rank()).degraded == []

    run(work())


def test_a_cap_holds_for_rankings_back_to_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path, actions={"share": {"max_offers_per_day": 2}, "learn": {}}) as desk:
            answers = [await offered(desk) for _ in range(6)]
            assert ["share" in items for items, _ in answers] == [True, True, False, False, False, False]
            assert not any(degraded for _, degraded in answers)

    run(work())


def test_what_is_held_about_a_user_includes_what_was_just_accepted(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            with pytest.raises(NotFound):
                await desk.running.service.user("x")
            await desk.post(*[desk.event(user="x", action="share") for _ in range(4)])
            held = await desk.running.service.user("x")
            assert held["counters"]["share"]["self"] == 4

    run(work())


class Still:
    """Follows the log as far as it is told."""

    generation: str | None = "g"

    def __init__(self) -> None:
        self.applied = 0

    def notify(self) -> None:
        """Nothing waits."""

    async def wait_applied(self, offset: int, timeout_s: float) -> bool:
        return self.applied >= offset


def test_users_leave_once_their_events_are_in_effect_and_too_many_count_for_everybody() -> None:
    follows = Still()
    own = OwnWrites(follows, max_users=2)
    own.wrote("a", 1)
    own.wrote("b", 2)
    assert [own.needed(user) for user in "abc"] == [1, 2, 0]
    own.wrote("a", 3)
    own.wrote("c", 4)
    assert [own.needed(user) for user in "abcd"] == [3, 2, 4, 2], "the oldest is forgotten, and its end is the floor"
    follows.applied = 3
    own.wrote("d", 5)
    assert [own.needed(user) for user in "abcd"] == [3, 3, 4, 5]
    assert not asyncio.run(own.passed(4, 0.0)) and asyncio.run(own.passed(3, 0.0))
