"""A keeper and a follower: what is acknowledged binds in both, and one that may lag says so and holds back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from features.catalogue import ActionSpec
from features.errors import LogUnavailable
from features.events import RankingEvent
from features.memory_store import MemoryStore
from features.store import Commit, Snapshot
from ranker.answers import RankAnswer
from ranker.workers.line import Line
from ranker.workers.messages import Append
from tests.ranker.online import ACTIONS, run
from tests.ranker.test_replay_exact import Day, YieldingStore, assert_replays
from tests.ranker.workers.pair import LIMIT_MS, Pair, following, pair

CANDIDATES = [{"action": "share"}, {"action": "learn"}]
RESTRICTED = {"share": {"safety_class": "sensitive"}, "learn": {}}


def offered(answer: RankAnswer) -> list[str]:
    return [item.action for item in answer.items]


def test_a_follower_ranks_as_the_keeper_does_and_its_rankings_are_in_the_keepers_log(tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:
            for number in range(8):
                await two.post(action=("share", "learn", "remind")[number % 3], user=f"u{number % 2}")
            here = await two.rank(id="here", user="u0", k=5)
            there = await two.keeper.rank(id="there", user="u0", k=5, traffic="probe")
            assert offered(here) == offered(there) and here.versions == there.versions
            assert here.degraded == there.degraded == []
            (logged,) = two.keeper.rankings()
            assert (logged.id, [item.action for item in logged.items]) == ("here", offered(here))

    run(work())


@pytest.mark.parametrize("how", ["off", "delete", "replace"])
def test_what_was_switched_off_is_off_in_the_follower_when_put_returns(how: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:
            assert "share" in offered(await two.rank(candidates=CANDIDATES))
            if how == "off":
                await two.service.put_actions({"share": ActionSpec(off=True)})
            elif how == "delete":
                await two.service.delete_action("share")
            else:
                await two.service.put_actions({"learn": ActionSpec()}, replace_all=True)
            assert two.follower.followed.live.changed == two.keeper.running.service.owners.catalogue.live.changed
            assert offered(await two.rank(candidates=CANDIDATES)) == ["learn"]

    run(work())


def test_an_acknowledged_event_binds_the_next_ranking_of_the_follower(tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path, actions={"share": {"consent": "ads"}, "learn": {}}) as two:
            for _ in range(20):
                await two.post(event="user", fields={"consents": ["ads"]})
                answer = await two.rank(candidates=CANDIDATES)
                assert set(offered(answer)) == {"share", "learn"} and not answer.degraded
                await two.post(event="user", fields={"consents": []})
                answer = await two.rank(candidates=CANDIDATES)
                assert offered(answer) == ["learn"] and not answer.degraded

    run(work())


def test_a_list_from_before_a_switch_off_is_answered_before_put_returns(tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:
            await two.rank()
            hear, held, ended = two.feed.hear, list[tuple[Any, Any]](), list[str]()

            def slow(line: Any, message: Any) -> None:
                if isinstance(message, Append):
                    held.append((line, message))
                else:
                    hear(line, message)

            two.feed.hear = slow  # type: ignore[method-assign]
            ranking = asyncio.create_task(two.rank(candidates=CANDIDATES, budget_ms=60_000.0))
            ranking.add_done_callback(lambda _: ended.append("ranking"))
            while not held:
                await asyncio.sleep(0.001)
            putting = asyncio.create_task(two.service.put_actions({"share": ActionSpec(off=True)}))
            putting.add_done_callback(lambda _: ended.append("put"))
            await asyncio.sleep(0.15)
            assert ended == [] and two.follower.followed.live.catalogue.get("share") == ActionSpec(off=True)
            hear(*held[0])
            await asyncio.gather(ranking, putting)
            assert ended == ["ranking", "put"] and "share" in offered(await ranking)

    run(work())


def test_put_waits_for_a_follower_that_does_not_answer_until_its_lease_ends_and_from_then_on_not(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with pair(tmp_path, actions=RESTRICTED) as two:
            await two.beat()
            two.gate.open.clear()
            putting = asyncio.create_task(two.service.put_actions({"share": ActionSpec(off=True)}))
            await asyncio.sleep(0.05)
            assert not putting.done()
            assert "share" in offered(await two.rank(candidates=CANDIDATES, traffic="probe")), "it cannot know"
            two.keeper.clock.advance(LIMIT_MS / 1000.0)
            two.feed.barrier.moved()
            await putting
            assert offered(await two.rank(candidates=CANDIDATES, traffic="probe")) == ["learn"]
            assert two.service.live() == 1
            await asyncio.wait_for(two.service.put_actions({"learn": ActionSpec(title="x")}), 1.0)
            assert two.service.live() == 1

    run(work())


def test_a_follower_that_may_lag_withholds_what_is_restricted_and_takes_nobodys_rows_for_current(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with pair(tmp_path, actions=RESTRICTED) as two:
            await two.beat()
            answer = await two.rank(candidates=CANDIDATES, traffic="probe")
            assert set(offered(answer)) == {"share", "learn"} and answer.degraded == []
            two.keeper.clock.advance(LIMIT_MS / 1000.0)
            answer = await two.rank(candidates=CANDIDATES, traffic="probe")
            assert offered(answer) == ["learn"]
            assert set(answer.degraded) >= {"safety:withheld", "features:stale"}
            await two.beat()
            answer = await two.rank(candidates=CANDIDATES, traffic="probe")
            assert set(offered(answer)) == {"share", "learn"} and answer.degraded == []

    run(work())


class AheadStore(MemoryStore):
    """Tells when it is read and when it was written."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.commits += 1

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        await asyncio.sleep(0)
        return await super().read(keys, timeout_ms)


def test_rows_that_are_ahead_of_the_tables_wait_for_them_and_are_not_used_without(tmp_path: Path) -> None:
    async def work() -> None:
        store = AheadStore()
        async with pair(tmp_path, store=store, lag_limit_ms=600_000.0) as two:
            two.gate.open.clear()
            before = store.commits
            await two.keeper.post({"action": "share", "user": "u9"})
            await two.keeper.applied()
            assert store.commits > before
            ranking = asyncio.create_task(two.rank(user="u9", traffic="probe", budget_ms=60_000.0))
            await asyncio.sleep(0.05)
            assert not ranking.done(), "it waits for the tables"
            two.gate.open.set()
            answer = await ranking
            assert answer.degraded == []
            two.gate.open.clear()
            await two.keeper.post({"action": "share", "user": "u9"})
            await two.keeper.applied()
            answer = await two.rank(user="u9", traffic="probe", budget_ms=100.0)
            assert "features:timeout" in answer.degraded
            two.gate.open.set()

    run(work())


def same_tables(two: Pair) -> None:
    ours, theirs = two.keeper.running.applier.population, two.follower.followed.population
    assert ours.offset == theirs.offset
    cells = [
        {(key, action): table.packed(action) for key, table in each.tables.items() for action in table}
        for each in (ours, theirs)
    ]
    assert cells[0] == cells[1] and cells[0]


def test_tables_move_as_the_keepers_do_also_when_it_begins_anew(tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:
            for number in range(30):
                await two.post(action=("share", "learn")[number % 2], user=f"u{number % 3}")
            await two.keeper.applied()
            await two.settled()
            same_tables(two)
            before = two.follower.followed.generation
            await two.keeper.store.clear()
            async with asyncio.timeout(10.0):
                while two.follower.followed.generation in (None, before):
                    await asyncio.sleep(0.01)
            await two.post(action="share")
            await two.keeper.applied()
            await two.settled()
            same_tables(two)
            assert "share" in offered(await two.rank(k=6))

    run(work())


def test_the_same_id_in_both_is_answered_once_and_not_after_the_user_was_forgotten(tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:
            answers = await asyncio.gather(
                *(two.rank(id="one", k=3) if number % 2 else two.keeper.rank(id="one", k=3) for number in range(8))
            )
            assert len({tuple(offered(answer)) for answer in answers}) == 1
            assert [ranking.id for ranking in two.keeper.rankings()] == ["one"]
            two.keeper.clock.advance(0.01)
            await two.beat()
            await two.service.forget("u1")
            two.keeper.clock.advance(0.01)
            await two.rank(id="one", k=3)
            assert [ranking.id for ranking in two.keeper.rankings()] == ["one", "one"]

    run(work())


def test_a_ranking_that_cannot_be_logged_is_answered_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:

            def full(lines: object) -> int:
                raise LogUnavailable("no space left")

            with monkeypatch.context() as patched:
                patched.setattr(two.feed.log, "append", full)
                answer = await two.rank()
            assert offered(answer) and answer.degraded == ["log:unavailable"]
            assert (await two.rank()).degraded == []
            await two.feed.close_all()
            await asyncio.sleep(0.05)
            answer = await two.rank()
            assert offered(answer) and "log:unavailable" in answer.degraded
            assert two.follower.ranking.decisions.unlogged == 2

    run(work())


def test_a_ranking_that_waited_too_long_for_the_keeper_is_not_logged_afterwards(tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:
            hear, late = two.feed.hear, list[tuple[Any, Any]]()
            two.feed.hear = lambda line, message: late.append((line, message))  # type: ignore[method-assign]
            answer = await two.rank(budget_ms=150.0)
            assert "log:unavailable" in answer.degraded
            two.keeper.clock.advance(1.0)
            for each in late:
                hear(*each)
            assert two.keeper.rankings() == []

    run(work())


def test_what_a_follower_logs_replays_to_the_bit(tmp_path: Path) -> None:
    async def work() -> None:
        store = YieldingStore(lambda: 0.0, 5)
        async with pair(tmp_path, store=store, epsilon=1.0, lag_limit_ms=600_000.0) as two:
            here, turn = two.keeper.rank, [0]

            async def either(caller: str = "app", explain: bool = False, **fields: Any) -> RankAnswer:
                turn[0] += 1
                await two.beat()
                return await (two.rank(**fields) if turn[0] % 3 else here(caller, explain, **fields))

            two.keeper.rank = either  # type: ignore[method-assign]
            day = Day(11)
            await day.spend(two.keeper, 60)
            await two.keeper.applied()
        logged = [event for event in two.keeper.logged() if isinstance(event, RankingEvent)]
        assert len(logged) > 60
        assert_replays(tmp_path / "log", least=40)

    run(work(), limit_s=60.0)


def test_metrics_add_up_what_both_have_counted(tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:
            two.follower.http = lambda: {"requests": {"200\n/v1/rank": 2}}
            two.follower.second.status = lambda: {  # type: ignore[method-assign]
                "version": "2", "loads": 1, "users": 9, "engine": {"answered": 4, "offered": 5, "healthy": True},
            }  # fmt: skip
            await two.rank(candidates=[{"action": "crop"}, {"action": "share"}])
            await two.beat()
            dropped = two.service.status()["drops"]
            assert sum(dropped.values()) >= 1
            assert two.service.counts()["http"] == {"requests": {"200\n/v1/rank": 2}}
            assert two.service.status()["second"] == {
                "loads": 1, "engine": {"answered": 4, "offered": 5, "goodput_share": 0.8, "late_share": 0.0},
            }  # fmt: skip
            await two.feed.close_all()
            assert two.service.counts()["http"] == {"requests": {"200\n/v1/rank": 2}}, "those that left count too"
            assert two.service.status()["workers"]["live"] == 1

    run(work())


def test_who_joins_while_much_changes_ends_up_with_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranker.workers.whole.CELLS_PER_PART", 3)
    monkeypatch.setattr("ranker.workers.whole.ENTRIES_PER_PART", 2)
    drained = Line.drained

    async def slowly(line: Line) -> None:
        await drained(line)
        await asyncio.sleep(0.003)

    monkeypatch.setattr(Line, "drained", slowly)
    many: dict[str, dict[str, Any]] = {f"a{number}": {"title": str(number)} for number in range(40)}

    async def work() -> None:
        async with pair(tmp_path, actions={**ACTIONS, **many}) as two:
            for number in range(60):
                await two.post(action=f"a{number % 40}", user=f"u{number % 5}")
            late = two.build(2)
            changes = 0
            async with following(late, two.folder):
                while not late.joined.is_set():
                    await two.service.put_actions({f"a{changes % 40}": ActionSpec(title=f"now {changes}")})
                    await two.keeper.running.service.delete_action(f"a{(changes + 7) % 40}")
                    await two.service.put_actions({f"a{(changes + 7) % 40}": ActionSpec()})
                    await two.post(action=f"a{changes % 40}")
                    changes += 1
                await two.keeper.applied()
                await two.settled(2)
                assert changes > 1
                same_tables(replace(two, follower=late))
                ours, theirs = two.keeper.running.service.owners.catalogue.live, late.followed.live
                assert dict(ours.catalogue.items()) == dict(theirs.catalogue.items())
                assert (ours.changed, ours.last_id) == (theirs.changed, theirs.last_id)

    run(work())
