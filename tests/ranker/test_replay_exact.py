"""The promise of the log: replaying it up to what a ranking had seen gives its vectors again, to the bit."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from features import rows
from features.embedded_store import open_embedded_store
from features.events import RankingEvent
from features.known import Known, Moment
from features.log import read_log
from features.memory_store import MemoryStore
from features.registry import COLUMNS, vectors
from features.rows import SessionRow, User
from features.scored import reached_draw, scored_set
from features.state import RowSet, State
from features.store import Commit, Snapshot
from ranker.clock import ManualClock
from ranker.pipeline import Pipeline
from ranker.scored_pool import ScoredPool
from tests.ranker.online import ACTIONS, Desk, VectorModel, run, service, specs_of

DAY_S = 86400.0


def replayed_vectors(logdir: Path) -> dict[str, NDArray[np.float32]]:
    """By ranking: the vectors of its pool, beside all that was scored, after its first `seen_offset` events."""
    rankings = [event for _, event in read_log(logdir) if isinstance(event, RankingEvent) and _is_exact(event)]
    waiting = sorted(rankings, key=lambda event: event.seen_offset or 0)
    state, rowset, found = State(), RowSet(), dict[str, NDArray[np.float32]]()
    end = 0
    for offset, event in read_log(logdir):
        while waiting and (waiting[0].seen_offset or 0) <= offset:
            ranking = waiting.pop(0)
            found[ranking.id] = vectors(_moment(ranking, state, rowset))[reached_draw(ranking)]
        state.apply(offset, event, rowset)
        state.population.seal(offset + 1)
        end = offset + 1
    for ranking in waiting:
        assert (ranking.seen_offset or 0) <= end
        found[ranking.id] = vectors(_moment(ranking, state, rowset))[reached_draw(ranking)]
    return found


def _is_exact(event: RankingEvent) -> bool:
    return not any(reason.startswith("features:") for reason in event.degraded)


def _moment(event: RankingEvent, state: State, rowset: RowSet) -> Moment:
    user = rowset.get(rows.user_key(event.user), event.time_s)
    session = rowset.get(rows.session_key(event.user, event.session), event.time_s)
    assert user is None or isinstance(user, User)
    assert session is None or isinstance(session, SessionRow)
    known = Known(state.population.at(), user, session, event.seen_offset)
    scored = scored_set(event) or []
    actions = tuple(action for action, _, _ in scored)
    targets = tuple(target for _, target, _ in scored)
    specs = tuple(state.catalogue.get(action) for action in actions)
    return Moment(event.time_s, event.user, event.context, known, actions, targets, specs)


class YieldingStore(MemoryStore):
    """A store whose answers take a few turns of the loop, so that everything overlaps with everything."""

    def __init__(self, clock: Callable[[], float], seed: int) -> None:
        super().__init__(clock)
        self._random = random.Random(seed)

    async def read(self, keys: Sequence[str], timeout_ms: float | None = None) -> Snapshot:
        await self._turns()
        snapshot = await super().read(keys, timeout_ms)
        await self._turns()
        return snapshot

    async def commit(self, commit: Commit) -> None:
        await self._turns()
        await super().commit(commit)
        await self._turns()

    async def _turns(self) -> None:
        for _ in range(self._random.randrange(12)):
            await asyncio.sleep(0)


class Day:
    """What the users of an app do in a day, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._offered: list[tuple[str, str, str]] = []

    async def spend(self, desk: Desk, moves: int) -> None:
        """A part of the day; a few things happen at once each time."""
        for _ in range(moves):
            # Many happen in the same millisecond as those before.
            desk.clock.advance(self._random.choice((0.0, 0.0, 0.003, 20.0, 1200.0)))
            await asyncio.gather(*(self._move(desk) for _ in range(self._random.randrange(1, 6))))
            if self._random.random() < 0.3:
                await desk.applied()

    async def _move(self, desk: Desk) -> None:
        moves = (self._rank, self._interact, self._answer, self._profile, self._catalogue, self._forget)
        await self._random.choices(moves, weights=(40, 25, 40, 3, 2, 1))[0](desk)

    async def _rank(self, desk: Desk) -> None:
        draw, user = self._random, self._user()
        entities = draw.sample(
            [
                {"id": "1", "type": "image", "time": desk.time(500.0)},
                {"id": "2", "type": "image"},
                {"id": "3", "type": "text", "time": desk.time(9.0)},
            ],
            draw.randrange(4),
        )
        context = {
            "surface": draw.choice(("chat", "mail")),
            "locale": "en-GB",
            "timezone": draw.choice(("Europe/Berlin", "nowhere")),
            "entities": entities,
            "trigger": {"type": draw.choice(("opened", "said"))},
            "fields": {"mood": draw.choice(("good", "bad"))},
        }
        answer = await desk.rank(user=user, session=self._session(), context=context, k=3)
        self._offered += [(answer.id, user, item.action) for item in answer.items]

    async def _interact(self, desk: Desk) -> None:
        draw = self._random
        event = {
            "time": self._time(desk),
            "user": self._user(),
            "session": self._session(),
            "type": draw.choice(("opened", "said")),
            "action": draw.choice((None, *ACTIONS)),
            "text": draw.choice((None, "translate this, please", "remind me at 17:30")),
        }
        answers = await desk.post(*[event] * draw.choice((1, 1, 2)))
        assert answers[0].status == "accepted"

    async def _answer(self, desk: Desk) -> None:
        draw = self._random
        if not self._offered:
            return
        ranking, user, action = draw.choice(self._offered[-30:])
        kind = draw.choice(("seen", "accept", "complete", "dismiss", "undo"))
        feedback = {"event": "feedback", "ranking": ranking, "user": user, "type": kind, "action": action}
        await desk.post({**feedback, "time": self._time(desk)})

    async def _profile(self, desk: Desk) -> None:
        await desk.post({"event": "user", "user": self._user(), "fields": {"age": self._random.randrange(10, 60)}})

    async def _catalogue(self, desk: Desk) -> None:
        action = self._random.choice(list(ACTIONS))
        changed = {**ACTIONS[action], "triggers": [self._random.choice(("opened", "said"))]}
        await desk.running.service.put_actions(specs_of({action: changed}))

    async def _forget(self, desk: Desk) -> None:
        await desk.running.service.forget(self._user())

    def _user(self) -> str:
        return self._random.choice(("u1", "u2", "u3", "u4"))

    def _session(self) -> str | None:
        return self._random.choice((None, "morning", "evening"))

    def _time(self, desk: Desk) -> str:
        """Some events come late, by up to days."""
        return desk.time(self._random.choice((0.0, 0.0, 0.0, 45.0, 7200.0, 3.0 * DAY_S)))


def assert_replays(logdir: Path, least: int) -> None:
    """Every exact ranking of a log has the vectors that a replay gives."""
    replayed = replayed_vectors(logdir)
    assert len(replayed) >= least
    explored = [event for _, event in read_log(logdir) if isinstance(event, RankingEvent) and event.id in replayed]
    for event in explored:
        packed = base64.b64decode(event.features or "")
        used = np.frombuffer(packed, "<f4").reshape(-1, len(COLUMNS))
        again = replayed[event.id]
        differs = [COLUMNS[column] for column in np.flatnonzero((used.view("<u4") != again.view("<u4")).any(axis=0))]
        assert not differs, f"ranking {event.id} at {event.seen_offset}"


@pytest.mark.parametrize("seed", range(3))
def test_a_day_with_late_events_equal_times_and_restarts_replays_to_the_bit(seed: int, tmp_path: Path) -> None:
    async def work() -> None:
        clock, day, model = ManualClock(), Day(seed), VectorModel()
        store = YieldingStore(clock.now_s, seed)
        for part in range(3):
            async with service(
                tmp_path, store=store, clock=clock, model=model, epsilon=1.0, lag_limit_ms=600_000.0, ids=f"{part}-"
            ) as desk:
                await day.spend(desk, 25)
                if part == 1:
                    # The server behind the store restarts and comes back with nothing.
                    await store.clear()
                await day.spend(desk, 25)
                await desk.applied()
        assert_replays(tmp_path / "log", least=100)

    run(work())


def test_a_day_on_a_real_server_replays_to_the_bit(tmp_path: Path) -> None:
    async def work() -> None:
        clock, day, model = ManualClock(), Day(7), VectorModel()
        for part in range(2):
            store = open_embedded_store(timeout_ms=2000.0)
            try:
                async with service(
                    tmp_path, store=store, clock=clock, model=model, epsilon=1.0, lag_limit_ms=600_000.0, ids=f"{part}-"
                ) as desk:
                    await day.spend(desk, 30)
                    await desk.applied()
            finally:
                await store.close()
        assert_replays(tmp_path / "log", least=40)

    run(work())


def test_what_may_not_be_offered_leaves_no_trace_in_the_vectors_of_the_rest(tmp_path: Path) -> None:
    actions = {**ACTIONS, "crop": {"entity_types": ["image"], "max_target_age_s": 60.0}}

    async def work() -> None:
        async with service(tmp_path, actions=actions, epsilon=1.0) as desk:
            await desk.post(*[desk.event(action="crop") for _ in range(5)], desk.event(action="share"))
            await desk.applied()
            pair = await both_ways(desk)
            assert np.array_equal(*pair, equal_nan=True)
            assert_replays(desk.logdir, least=2)

            decisions = desk.running.service.owners.decisions
            decisions.pipeline = unjudged(decisions.pipeline)
            without, beside = await both_ways(desk)
            assert not np.array_equal(without, beside, equal_nan=True), "the best of all would be among them"
            withheld = [action for _, action, _, _ in desk.rankings()[-1].withheld]
            assert withheld == ["crop"]
            assert_replays(desk.logdir, least=4)

    run(work())


async def both_ways(desk: Desk) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The vectors of two candidates in the same state: alone, and asked for beside one whose target is too old."""
    context = {"surface": "chat", "entities": [{"id": "1", "type": "image", "time": desk.time(500.0)}]}
    rest = [{"action": "share"}, {"action": "learn"}]
    found = []
    for candidates in (rest, [{"action": "crop", "target": "image:1"}, *rest]):
        answer = await desk.rank(context=context, candidates=candidates, traffic="probe")
        assert {item.action for item in answer.items} == {"share", "learn"}
        moment, used = desk.model.shown[-1]
        found.append(used[[action != "crop" for action in moment.actions]])
    for candidates in (rest, [{"action": "crop", "target": "image:1"}, *rest]):
        await desk.rank(context=context, candidates=candidates)  # into the log
    return found[0], found[1]


def unjudged(pipeline: Pipeline) -> Pipeline:
    """The pipeline with nothing judged before light."""
    stages = (replace(stage, judges=()) if isinstance(stage, ScoredPool) else stage for stage in pipeline.stages)
    return replace(pipeline, stages=tuple(stages))
