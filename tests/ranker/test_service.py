"""The running service: what it answers, logs and refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from features import rows
from features.errors import LogUnavailable, StoreTimeout, StoreUnavailable
from features.events import MAX_STRING, FeedbackEvent, InteractionEvent
from features.memory_store import MemoryStore
from features.recent_lines import Written
from features.store import Snapshot
from ranker.errors import Conflict, NotFound, ServiceUnavailable
from ranker.stages.explore import Explore
from ranker.types import RankRequest
from ranker.user_desk import FORGET_S
from tests.ranker.online import Desk, run, service, specs_of


class MoodyStore(MemoryStore):
    """Fails to read when told."""

    error: Exception | None = None

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        if self.error is not None:
            raise self.error
        return await super().read(keys, timeout_ms)


def test_a_ranking_is_in_the_log_before_it_is_answered_with_all_that_replay_needs(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            answer = await desk.rank(session="s1", k=2)
            (event,) = desk.rankings()
            assert event.id == answer.id
            assert event.session == "s1"
            assert [(i.action, i.target, i.position) for i in event.items] == [
                (i.action, i.target, i.position) for i in answer.items
            ]
            assert len(answer.items) == 2
            assert event.pool is not None and len(event.pool) == 3, "all but those that need an image or a text"
            assert [action for _, action, _, _ in event.withheld] == ["learn"], "scored, but of a group with a better"
            assert event.features is None, "only explored traffic keeps its vectors"
            assert event.seen_offset == 6, "the catalogue's events"
            assert set(event.versions) == {"schema", "light", "policy"} and event.versions == answer.versions
            assert (event.context.surface, event.traffic, event.degraded) == ("chat", "live", [])
            assert "total" in answer.timings_ms and answer.verdicts is None

    run(work())


def test_a_probe_changes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            await desk.applied()
            before, rows = desk.logged(), dict(desk.store._rows)  # type: ignore[attr-defined]
            answer = await desk.rank(traffic="probe", id="p1")
            assert answer.items and answer.traffic == "probe"
            assert (await desk.rank(traffic="probe", id="p1", k=1)).id == "p1", "no id is remembered"
            await desk.applied()
            assert desk.logged() == before
            assert desk.store._rows == rows  # type: ignore[attr-defined]

    run(work())


def test_explaining_adds_reasons_verdicts_and_sources(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            answer = await desk.rank(explain=True, candidates=[{"action": "share"}, {"action": "nonsense"}])
            assert [item.action for item in answer.items] == ["share"]
            assert answer.items[0].reasons
            assert answer.verdicts and answer.verdicts[0].action == "nonsense"
            assert answer.candidates == {"caller": 1}

    run(work())


def test_the_same_id_is_logged_once_and_loses_what_is_no_longer_safe(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            first = await desk.rank(id="r1", k=4)
            again = await desk.rank(id="r1", k=4)
            assert again.items == first.items
            gone = first.items[1].action
            await desk.running.service.put_actions(specs_of({gone: {"off": True}}))
            later = await desk.rank(id="r1", k=4)
            assert later.items == [item for item in first.items if item.action != gone]
            await desk.running.service.put_actions({}, replace_all=True)
            empty = await desk.rank(id="r1", k=4)
            assert empty.items == [] and "empty" in empty.degraded
            assert len(desk.rankings()) == 1
            with pytest.raises(Conflict):
                await desk.rank(id="r1", k=3)
            assert (await desk.rank(id="r1", user="u2")).id == "r1", "scoped to the user"

    run(work())


def test_what_was_learned_of_a_user_counts_in_the_next_ranking(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            answer = await desk.rank()
            action = answer.items[0].action
            feedback = {"event": "feedback", "ranking": answer.id, "type": "accept", "action": action}
            assert [a.status for a in await desk.post(feedback)] == ["accepted"]
            await desk.applied()
            held = await desk.running.service.user("u1")
            assert held["counters"][action] == {"offered": 1, "accepted": 1}
            assert [done["action"] for done in held["history"]] == [action]
            assert held["sessions"] == 1
            await desk.rank()
            moment, _ = desk.model.shown[-1]
            assert moment.known.user is not None and moment.known.user.row.history[0].action == action

    run(work())


def test_the_life_of_a_row_is_judged_by_the_rankings_own_time(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            await desk.post(desk.event(session="s1"))
            await desk.applied()
            reader, born_s = desk.running.service.owners.reader, desk.clock.now_s()
            request = msgspec.convert({"user": "u1", "session": "s1", "context": {}}, RankRequest)
            desk.clock.advance(rows.SESSION_LIFE_S / 2)  # what the clock says by now is another matter
            for age_s, alive in ((rows.SESSION_LIFE_S, True), (rows.SESSION_LIFE_S + 0.001, False)):
                known, degraded = await reader.read(request, born_s + age_s, 1000.0)
                assert degraded == ()
                assert (known.session is not None) == alive
                assert known.user is not None

    run(work())


def test_two_users_may_use_the_same_ranking_id(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            for user in ("u1", "u2"):
                answer = await desk.rank(id="1", user=user)
                action = answer.items[0].action
                await desk.post({"event": "feedback", "ranking": "1", "user": user, "type": "accept", "action": action})
            await desk.applied()
            for user in ("u1", "u2"):
                held = await desk.running.service.user(user)
                assert sum(counts.get("accepted", 0) for counts in held["counters"].values()) == 1

    run(work())


@pytest.mark.parametrize(
    ("error", "reason"),
    [(StoreTimeout("slow"), "features:timeout"), (StoreUnavailable("down"), "features:unavailable")],
    ids=["slow", "down"],
)
def test_a_store_that_fails_degrades_the_answer_and_nothing_else(error: Exception, reason: str, tmp_path: Path) -> None:
    async def work() -> None:
        store = MoodyStore()
        async with service(tmp_path, store=store) as desk:
            store.error = error
            answer = await desk.rank()
            assert answer.items and reason in answer.degraded
            (event,) = desk.rankings()
            assert event.seen_offset is None
            with pytest.raises(ServiceUnavailable):
                await desk.running.service.user("u1")
            assert [a.status for a in await desk.post({})] == ["accepted"], "applying drops duplicates too"
            store.error = None
            assert reason not in (await desk.rank()).degraded

    run(work())


def test_an_applier_that_is_behind_makes_personal_rows_stale(tmp_path: Path) -> None:
    async def work() -> None:
        store = MoodyStore()
        async with service(tmp_path, store=store, lag_limit_ms=1000.0) as desk:
            store.error = StoreTimeout("slow")
            await desk.post({})
            desk.running.applier.lag_ms()
            desk.clock.advance(2.0)
            assert "features:stale" in (await desk.rank()).degraded
            store.error = None
            await desk.applied()
            assert (await desk.rank()).degraded == []

    run(work())


def test_a_catalogue_ahead_of_the_state_is_said(tmp_path: Path) -> None:
    async def work() -> None:
        store = MoodyStore()
        async with service(tmp_path, store=store) as desk:
            await desk.applied()
            put = asyncio.create_task(desk.running.service.put_actions(specs_of({"share": {"triggers": ["x"]}})))
            await asyncio.sleep(0)
            answer = await desk.rank()
            assert "share" in [item.action for item in answer.items]
            assert answer.degraded == ["features:stale"]
            await put

    run(work())


def test_rankings_go_on_when_the_log_is_full_and_events_are_refused_whole(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            log = desk.running.service.owners.log

            def full(lines: Sequence[bytes | Written]) -> int:
                raise LogUnavailable("no space left on device")

            append, log.append = log.append, full  # type: ignore[method-assign]
            answer = await desk.rank()
            assert answer.items and answer.degraded == ["log:unavailable"]
            with pytest.raises(ServiceUnavailable, match="no space"):
                await desk.post({"id": "x1"})
            with pytest.raises(ServiceUnavailable):
                await desk.running.service.put_actions(specs_of({"new": {}}))
            with pytest.raises(NotFound):
                desk.running.service.action("new")
            log.append = append  # type: ignore[method-assign]
            assert [a.status for a in await desk.post({"id": "x1"})] == ["accepted"], "it was not taken before"

    run(work())


def refusals(desk: Desk) -> list[tuple[dict[str, Any] | bytes, str, str]]:
    """Bad events, with the reason and the word that the detail must have."""
    good = desk.event()
    return [
        (b"{", "invalid", "truncated"),
        (b"[]", "invalid", "object"),
        ({key: value for key, value in good.items() if key != "time"}, "invalid", "time"),
        ({key: value for key, value in good.items() if key != "id"}, "invalid", "id"),
        ({key: value for key, value in good.items() if key != "user"}, "invalid", "user"),
        ({**good, "text": "x" * (MAX_STRING + 1)}, "invalid", "text"),
        ({**good, "event": "nonsense"}, "invalid", "nonsense"),
        ({**good, "event": "ranking"}, "not_allowed", "ranking"),
        ({**good, "event": "forget"}, "not_allowed", "DELETE"),
        ({**good, "event": "action", "action": "a"}, "not_allowed", "PUT"),
        ({**good, "time": desk.time(8 * 86400.0)}, "too_old", "time"),
        ({**good, "time": desk.time(-600.0)}, "future", "time"),
        ({**good, "event": "feedback", "ranking": "r", "action": "a", "type": "hum"}, "invalid", "hum"),
    ]


def test_every_bad_event_is_refused_with_a_reason_and_the_good_one_beside_it_is_taken(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            bad = refusals(desk)
            lines = [event if isinstance(event, bytes) else msgspec.json.encode(event) for event, _, _ in bad]
            answers = await desk.running.service.ingest([*lines, msgspec.json.encode(desk.event(id="good"))])
            for answer, (_, reason, word) in zip(answers[:-1], bad, strict=True):
                assert (answer.status, answer.reason) == ("refused", reason)
                assert word in (answer.detail or "")
            assert (answers[-1].id, answers[-1].status) == ("good", "accepted")
            assert [event.id for event in desk.logged() if isinstance(event, InteractionEvent)] == ["good"]

    run(work())


def test_the_same_event_counts_once_within_a_request_across_requests_and_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        store = MemoryStore()
        async with service(tmp_path, store=store) as desk:
            event = desk.event(id="once")
            assert [a.status for a in await desk.post(event, event)] == ["accepted", "duplicate"]
            assert [a.status for a in await desk.post(event)] == ["duplicate"]
            both = await asyncio.gather(desk.post(desk.event(id="raced")), desk.post(desk.event(id="raced")))
            assert sorted(answers[0].status for answers in both) == ["accepted", "duplicate"]
            await desk.applied()
        async with service(tmp_path, store=store, clock=desk.clock) as desk:
            assert [a.status for a in await desk.post(event)] == ["duplicate"]

    run(work())


def test_accepted_means_durable(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            log = desk.running.service.owners.log
            await desk.post({}, {})
            assert log.durable == log.end

    run(work())


def test_feedback_from_outside_is_logged_as_it_came(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            await desk.post({"event": "feedback", "ranking": "gone", "type": "seen", "action": "share", "value": 0.5})
            feedback = [event for event in desk.logged() if isinstance(event, FeedbackEvent)]
            assert (feedback[0].ranking, feedback[0].value) == ("gone", 0.5)
            await desk.applied()
            assert desk.running.service.status()["applier"]["skipped"] == {"orphan_feedback": 1}

    run(work())


def test_the_catalogue_is_changed_at_once_and_survives_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path, actions={}) as desk:
            assert (await desk.rank()).degraded == ["empty"]
            assert await desk.running.service.put_actions(specs_of({"a": {"title": "A"}, "b": {}})) == 2
            assert [item.action for item in (await desk.rank()).items] != []
            await desk.running.service.put_actions(specs_of({"c": {}, "a": {"title": "A2"}}), replace_all=True)
            assert list(desk.running.service.actions()) == ["a", "c"]
            await desk.running.service.delete_action("c")
            with pytest.raises(NotFound, match="'c'"):
                await desk.running.service.delete_action("c")
        async with service(tmp_path, actions={}) as desk:
            assert desk.running.service.actions() == specs_of({"a": {"title": "A2"}})

    run(work())


def test_forgetting_is_in_effect_when_it_returns(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            await desk.rank(id="r1")
            await desk.post({"event": "user", "fields": {"age": 30}})
            await desk.applied()
            assert (await desk.running.service.user("u1"))["profile"] == {"age": 30}
            await desk.running.service.forget("u1")
            with pytest.raises(NotFound):
                await desk.running.service.user("u1")
            await desk.rank()
            assert desk.model.shown[-1][0].known.user is None
            assert (await desk.rank(id="r1", k=1)).id == "r1", "its remembered answers are gone too"

    run(work())


def test_forgetting_with_the_store_down_is_durable_and_says_when_it_takes_effect(tmp_path: Path) -> None:
    async def work() -> None:
        store = MoodyStore()
        async with service(tmp_path, store=store) as desk:
            await desk.post({})
            await desk.applied()
            store.error = StoreUnavailable("down")
            desk.running.service.owners.users.forget_s = 0.02
            with pytest.raises(ServiceUnavailable, match="takes effect"):
                await desk.running.service.forget("u1")
            store.error = None
            await desk.applied()
            with pytest.raises(NotFound):
                await desk.running.service.user("u1")

    run(work())


def test_forgetting_while_the_store_is_down_is_answered_within_two_seconds() -> None:
    assert FORGET_S < 2.0


def test_status_and_readiness_are_numbers_and_names(tmp_path: Path) -> None:
    async def work() -> None:
        async with service(tmp_path) as desk:
            await desk.applied()
            status = desk.running.service.status()
            assert status["log"]["end"] == status["log"]["durable"] == status["applier"]["applied"] == 6
            assert status["applier"]["lag_ms"] == 0.0
            assert desk.running.service.not_ready() == {}
            desk.running.applier._let_go()
            assert "store" in desk.running.service.not_ready()
            assert any(isinstance(stage, Explore) for stage in desk.running.pipeline.stages)

    run(work())
