"""The state machine over the log: what counts, what is skipped, and that everything stays bounded."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from features import rows
from features.batch import pack_row
from features.cells import ACCEPTED, COMPLETED, DISMISSED, OFFERED, SEEN, SELF, decayed
from features.events import (
    COUNTED_TRAFFIC,
    TRAFFIC_TYPES,
    Event,
    FeedbackEvent,
    ForgetEvent,
    InteractionEvent,
    RankedItem,
    RankingEvent,
    UserEvent,
    from_seconds,
)
from features.population import ANY, EVERYTHING
from features.rows import RankingRow, SessionRow, User
from features.state import RowSet, State
from tests.features.streams import ACTIONS, EventStream

START_S = 1_700_000_000.0
HOUR_S = 3600.0


class World:
    """A state with its rows and a builder of events."""

    def __init__(self) -> None:
        self.state, self.rowset = State(), RowSet()
        self.offset = 0

    def apply(self, event: Event) -> bool:
        self.offset += 1
        return self.state.apply(self.offset - 1, event, self.rowset)

    def rank(
        self, id: str, at_s: float = 0.0, user: str = "u", actions: Sequence[str] = ("a", "b"), **more: Any
    ) -> bool:
        items = [RankedItem(action=action, position=place) for place, action in enumerate(actions, 1)]
        return self.apply(RankingEvent(id=id, time=at(at_s), user=user, items=items, **more))

    def answer(
        self, ranking: str, kind: str, at_s: float, user: str = "u", action: str = "a", id: str | None = None
    ) -> bool:
        name = id or f"f{self.offset}"
        return self.apply(FeedbackEvent(id=name, time=at(at_s), ranking=ranking, user=user, type=kind, action=action))

    def do(self, at_s: float = 0.0, user: str = "u", action: str | None = None, **more: Any) -> bool:
        fields: dict[str, Any] = {"id": f"i{self.offset}", "type": "said", **more}
        return self.apply(InteractionEvent(time=at(at_s), user=user, action=action, **fields))

    def user(self, user: str = "u") -> User:
        row = self.rowset.rows[rows.user_key(user)]
        assert isinstance(row, User)
        return row

    def session(self, session: str | None = None, user: str = "u") -> SessionRow:
        row = self.rowset.rows[rows.session_key(user, session)]
        assert isinstance(row, SessionRow)
        return row

    def counts(self, action: str = "a") -> list[float]:
        """Offered, seen, accepted, completed, dismissed, self: of everybody, which here must be the user's own too."""
        cell = self.state.population.at().gather(EVERYTHING, (action,))[0, : SELF + 1].tolist()
        assert self.user().counters.gather((action,))[0, : SELF + 1].tolist() == cell
        return [float(count) for count in cell]


def at(seconds: float) -> Any:
    return from_seconds(START_S + seconds)


def snapshot(world: World) -> dict[str, Any]:
    tables = world.state.population.tables
    cells = {(key, name): table.gather((name,)).tobytes() for key, table in tables.items() for name in table}
    packed = {key: row if isinstance(row, float) else pack_row(row) for key, row in world.rowset.rows.items()}
    return {"cells": cells, "rows": packed}


def test_an_offer_and_what_follows_move_the_counters_of_user_and_everybody() -> None:
    world = World()
    assert world.rank("r", 0)
    assert world.answer("r", "seen", 1)
    assert world.answer("r", "complete", 2)
    assert world.counts("a") == [1, 1, 1, 1, 0, 0]
    assert world.counts("b") == [1, 0, 0, 0, 0, 0]
    assert world.do(3, action="a")
    assert world.counts("a") == [1, 1, 1, 1, 0, 1]
    assert [done.action for done in world.user().row.history] == ["a", "a"]
    assert [token.word for token in world.session().tokens] == ["+a", "+a"]


def test_an_action_offered_about_two_things_is_offered_twice_and_in_one_list() -> None:
    world = World()
    items = [RankedItem(action="a", target=target, position=place) for place, target in enumerate(("i:1", "i:2"), 1)]
    world.apply(RankingEvent(id="r", time=at(0), user="u", items=items))
    for target in ("i:1", "i:2"):
        fields: dict[str, Any] = {"ranking": "r", "user": "u", "type": "accept", "action": "a", "target": target}
        assert world.apply(FeedbackEvent(id=target, time=at(1), **fields))
    assert world.counts("a") == [2, 0, 2, 0, 0, 0]
    assert world.user().offers_since("a", 0.0) == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([("accept", 1), ("accept", 2)], [1, 0, 1, 0, 0, 0]),
        ([("complete", 1)], [1, 0, 1, 1, 0, 0]),
        ([("accept", 1), ("undo", 3)], [1, 0, 0, 0, 0, 0]),
        ([("accept", 1), ("dismiss", 11)], [1, 0, 0, 0, 0, 0]),
        ([("accept", 1), ("dismiss", 12)], [1, 0, 1, 0, 1, 0]),
        ([("undo", 1)], [1, 0, 0, 0, 0, 0]),
        ([("accept", 1), ("undo", 3), ("accept", 5)], [1, 0, 1, 0, 0, 0]),
        ([("accept", 1), ("undo", 3), ("complete", 5)], [1, 0, 1, 1, 0, 0]),
    ],
)
def test_accidents_count_neither_as_success_nor_as_refusal(
    given: list[tuple[str, float]], expected: list[float]
) -> None:
    world = World()
    world.rank("r", 0)
    for kind, at_s in given:
        world.answer("r", kind, at_s)
    assert world.counts() == expected
    total = world.state.population.at().total(EVERYTHING)
    assert total[ACCEPTED] == expected[ACCEPTED]


SKIPPED: dict[str, tuple[str, Callable[[World], bool]]] = {
    "a repeated ranking": ("duplicate", lambda world: world.rank("r", 5, actions=("x",))),
    "a repeated feedback": ("duplicate", lambda world: world.answer("r", "complete", 5, id="f1")),
    "an id used by another kind of event": ("duplicate", lambda world: world.do(5, id="f1")),
    "feedback to no ranking": ("orphan_feedback", lambda world: world.answer("never", "accept", 5)),
    "feedback to another user's ranking": ("orphan_feedback", lambda world: world.answer("r", "accept", 5, user="v")),
    "feedback a week late": ("orphan_feedback", lambda world: world.answer("r", "accept", 8 * 86400.0)),
    "feedback about what was not offered": ("no_new_outcome", lambda world: world.answer("r", "accept", 5, action="z")),
    "feedback that says it again": ("no_new_outcome", lambda world: world.answer("r", "accept", 5)),
    **{
        f"a {traffic} ranking": (f"traffic_{traffic}", partial(World.rank, id="p", at_s=5.0, traffic=traffic))
        for traffic in TRAFFIC_TYPES
        if traffic not in COUNTED_TRAFFIC
    },
}


@pytest.mark.parametrize("name", SKIPPED)
def test_what_must_not_count_changes_no_counter_and_is_counted_itself(name: str) -> None:
    reason, send = SKIPPED[name]
    world = World()
    world.rank("r", 0)
    world.answer("r", "accept", 1, id="f1")
    before = snapshot(world)
    assert not send(world)
    assert world.state.skipped == {reason: 1}
    after = snapshot(world)
    assert after["cells"] == before["cells"]
    personal = {key for key in after["rows"] if key[0] == "u"}
    assert personal == {key for key in before["rows"] if key[0] == "u"}
    assert world.counts() == [1, 0, 1, 0, 0, 0]
    if reason.startswith("traffic"):
        assert after == before


def test_feedback_that_comes_before_its_ranking_is_an_orphan() -> None:
    world = World()
    assert not world.answer("r", "accept", 1)
    world.rank("r", 0)
    assert world.counts() == [1, 0, 0, 0, 0, 0]


def test_an_id_is_remembered_for_seven_days() -> None:
    world = World()
    assert world.do(0, id="same")
    assert not world.do(7 * 86400.0, id="same")
    assert world.do(7 * 86400.0 + 1, id="same")


def test_two_users_may_use_the_same_ranking_id() -> None:
    world = World()
    assert world.rank("r", 0, user="u")
    assert world.rank("r", 0, user="v")
    assert world.answer("r", "accept", 1, user="v")
    assert world.user("u").counters.gather(("a",))[0, ACCEPTED] == 0
    assert world.user("v").counters.gather(("a",))[0, ACCEPTED] == 1


@pytest.mark.parametrize("order", list(permutations(range(4)))[::5])
def test_histories_sort_by_time_then_offset_however_events_arrive(order: tuple[int, ...]) -> None:
    world = World()
    events = [(10.0, "early"), (20.0, "tie"), (20.0, "tie"), (30.0, "last")]
    for place in order:
        time_s, action = events[place]
        world.do(time_s, action=f"{action}{place}")
    offsets = {place: offset for offset, place in enumerate(order)}
    ties = sorted((1, 2), key=lambda place: offsets[place])
    expected = ["early0", *(f"tie{place}" for place in ties), "last3"]
    assert [done.action for done in world.user().row.history] == expected
    assert [done.action for done in world.session().actions] == expected
    assert [token.word for token in world.session().tokens] == [f"+{action}" for action in expected]


def test_a_late_event_is_decayed_as_if_it_had_been_in_time() -> None:
    ordered, late = World(), World()
    for world, times in ((ordered, (0.0, HOUR_S, 2 * HOUR_S)), (late, (2 * HOUR_S, 0.0, HOUR_S))):
        for time_s in times:
            world.do(time_s, action="a")
    one, two = (decayed(world.user().counters.gather(("a",)), START_S + 2 * HOUR_S) for world in (ordered, late))
    assert one == pytest.approx(two)
    assert one[0, 1] == pytest.approx(1 + 1 / 2 + 1 / 4)


def test_a_session_ends_after_a_day_without_events_but_the_user_stays() -> None:
    world = World()
    world.do(0, action="a", session="s")
    world.do(25 * HOUR_S, action="b", session="s")
    assert [done.action for done in world.session("s").actions] == ["b"]
    assert [done.action for done in world.user().row.history] == ["a", "b"]


def test_profile_fields_merge_and_null_deletes_and_what_cannot_be_stored_is_left_out() -> None:
    world = World()

    def tell(fields: dict[str, Any]) -> dict[str, Any]:
        world.apply(UserEvent(id=f"p{world.offset}", time=at(world.offset), user="u", fields=fields))
        world.user().pack()
        return world.user().row.profile

    assert tell({"age": 12, "locale": "en"}) == {"age": 12, "locale": "en"}
    assert tell({"age": None, "size": 2**64 - 1}) == {"locale": "en", "size": 2**64 - 1}
    assert tell({"locale": 2**70, "long": "x" * 10_000}) == {"size": 2**64 - 1}
    assert len(tell({f"f{number}": number for number in range(1000)})) == rows.MAX_PROFILE_FIELDS


def test_forget_removes_every_row_of_the_user_and_no_other() -> None:
    world = World()
    for user in ("u", "v"):
        for session in (None, "s1", "s2"):
            world.rank(f"r{session}", 0, user=user, session=session)
            world.do(1, user=user, session=session, action="a", text="secret words")
        world.apply(UserEvent(id=f"p{user}", time=at(2), user=user, fields={"age": 3}))
    mine = {key for key in world.rowset.rows if key[0] in "usr"}
    theirs = {rows.user_key("v")} | {rows.session_key("v", name) for name in (None, "s1", "s2")}
    theirs |= {rows.ranking_key("v", f"r{name}") for name in (None, "s1", "s2")}
    cells = snapshot(world)["cells"]
    world.rowset.changed.clear()
    assert world.apply(ForgetEvent(id="forget", time=at(3), user="u"))
    assert {key for key in world.rowset.rows if key[0] in "usr"} == theirs
    assert {key for key, row in world.rowset.changed.items() if row is None} == mine - theirs
    assert snapshot(world)["cells"] == cells, "what everybody did together names nobody"
    assert not world.answer("rs1", "accept", 4)
    world.rank("new", 5)
    assert world.user().counters.gather(("a",))[0, OFFERED] == 1


def test_sessions_and_rankings_of_a_user_are_bounded_and_what_leaves_is_deleted() -> None:
    world = World()
    for number in range(200):
        world.rank(f"r{number}", number, session=f"s{number}")
    row = world.user().row
    assert (len(row.sessions), len(row.rankings)) == (rows.MAX_SESSIONS, rows.MAX_RANKINGS)
    kept = Counter(key[0] for key in world.rowset.rows)
    assert (kept["s"], kept["r"]) == (rows.MAX_SESSIONS, rows.MAX_RANKINGS)
    assert rows.ranking_key("u", "r199") in world.rowset.rows
    assert rows.ranking_key("u", "r0") not in world.rowset.rows


def test_ids_with_separators_never_reach_another_row() -> None:
    world = World()
    for user, session in (("a", "b:c"), ("a:b", "c"), ("a\x00b", "c"), ("a", "b\x00c"), ("a", None), ("", "a")):
        world.do(0, user=user or "x", session=session, action="a")
    sessions = [row for key, row in world.rowset.rows.items() if key[0] == "s"]
    assert [row.events for row in sessions if isinstance(row, SessionRow)] == [1] * 6


def flood(seed: int, count: int) -> World:
    """Ten thousand hostile events of two users: many names, long ones, many fields, late and repeated."""
    draw, world = random.Random(seed), World()
    for number in range(count):
        user = draw.choice("uv")
        late_s = draw.choice((0.0, 0.0, 5000.0, 300_000.0))
        at_s = 60.0 * number - late_s + 400_000.0
        kind = draw.random()
        name = f"{number % 700}-" + "🦜" * draw.choice((1, 200))
        session = draw.choice((None, "s", f"s{number}"))
        if kind < 0.3:
            fields = {f"f{place}": "🦜" * 4096 for place in range(12)}
            world.do(at_s, user, draw.choice((None, name)), session=session, text="🦜 text " * 500, fields=fields)
        elif kind < 0.6:
            world.rank(
                f"r{number}", at_s, user, [name, "a", *(f"x{number}-{place}" for place in range(3))], session=session
            )
        elif kind < 0.9:
            target = draw.randrange(max(number - 30, 0), number + 1)
            world.answer(f"r{target}", draw.choice(("seen", "accept", "complete", "dismiss", "undo")), at_s, user)
        else:
            deep: Any = {f"k{number}": "v" * 4096, "list": [[["x" * 50]] * 50] * 50}
            world.apply(UserEvent(id=f"p{number}", time=at(at_s), user=user, fields=deep))
    return world


def largest(value: Any) -> int:
    """The longest list or dictionary inside a row."""
    if isinstance(value, dict):
        return max([len(value), *(largest(inner) for inner in value.values())])
    if isinstance(value, list):
        return max([len(value), *(largest(inner) for inner in value)])
    fields = getattr(value, "__struct_fields__", ())
    return max((largest(getattr(value, name)) for name in fields), default=0)


def test_ten_thousand_hostile_events_leave_rows_of_bounded_length_and_size() -> None:
    world = flood(3, 10_000)
    sizes: dict[str, int] = Counter()
    for key, row in world.rowset.rows.items():
        if not isinstance(row, float):
            assert largest(row.row.profile if isinstance(row, User) else row) <= 128 + 1
            sizes[key[0]] = max(sizes[key[0]], len(pack_row(row)))
    for user in ("u", "v"):
        own = world.user(user).row
        sized = [len(own.history), len(own.offers), len(own.sessions), len(own.rankings), len(own.profile)]
        limits = (
            rows.MAX_HISTORY,
            rows.MAX_USER_ACTIONS,
            rows.MAX_SESSIONS,
            rows.MAX_RANKINGS,
            rows.MAX_PROFILE_FIELDS,
        )
        assert all(size <= limit for size, limit in zip(sized, limits, strict=True))
        assert len(own.actions) <= rows.MAX_USER_ACTIONS
    assert sizes["u"] < 1_000_000, sizes
    assert sizes["s"] < 200_000, sizes
    assert sizes["r"] < 20_000, sizes
    assert Counter(key[0] for key in world.rowset.rows)["r"] <= 2 * rows.MAX_RANKINGS
    assert Counter(key[0] for key in world.rowset.rows)["s"] <= 2 * rows.MAX_SESSIONS


@pytest.mark.parametrize("seed", range(6))
def test_packing_rows_between_events_changes_nothing(seed: int) -> None:
    kept, packed = (State(), RowSet()), (State(), RowSet())
    for offset, event in enumerate(EventStream(seed).take(300)):
        taken = [state.apply(offset, copy.deepcopy(event), rowset) for state, rowset in (kept, packed)]
        assert taken[0] == taken[1]
        for key, row in packed[1].rows.items():
            if isinstance(row, User):
                packed[1].rows[key] = User.unpack(row.pack())
            elif isinstance(row, SessionRow):
                packed[1].rows[key] = rows.unpack_session(rows.pack(row))
            elif isinstance(row, RankingRow):
                packed[1].rows[key] = rows.unpack_ranking(rows.pack(row))
    assert kept[1].rows.keys() == packed[1].rows.keys()
    for key, row in kept[1].rows.items():
        other = packed[1].rows[key]
        assert row == other if isinstance(row, float) else pack_row(row) == pack_row(other)


def test_the_sums_over_contexts_are_those_over_everything() -> None:
    world = World()
    for event in EventStream(5).take(500):
        world.apply(event)
    population = world.state.population
    for family in ("surface", "trigger", "entities", "fields"):
        keys = [key for key in population.tables if key.startswith(f"{family}:")]
        summed = np.sum([population.at().gather(key, (*ACTIONS, ANY)) for key in keys], axis=0)
        for column in (OFFERED, SEEN, COMPLETED, DISMISSED):
            assert summed[:, column].tolist() == population.at().gather(EVERYTHING, (*ACTIONS, ANY))[:, column].tolist()


def test_an_own_action_counts_for_everything_and_for_what_came_before_it_but_in_no_context() -> None:
    world = World()
    world.do(0, action="a")
    families = {key.partition(":")[0] for key in world.state.population.tables}
    assert families == {EVERYTHING, "last1", "last2", "last3", "path1", "path2", "path3", "path4"}


def test_an_event_of_1970_or_9999_is_one_like_any_other() -> None:
    world = World()
    for time_s in (-START_S, 253_402_300_799.0 - START_S, 0.0):
        assert world.do(time_s, action="a", session=str(time_s))
    cell = world.state.population.at().gather(EVERYTHING, ("a",))
    assert cell[0, SELF] == 3
    assert np.isfinite(cell).all()
    assert world.user().counters.gather(("a",))[0, SELF] == 2, "8,000 years later the user is a new one"


def test_odd_names_are_only_names() -> None:
    world = World()
    for name in ("", "+a", "!a", "a\x00", "🦜" * 64, "a" * 256):
        assert world.do(1, action=name or None, type=name or "x")
    assert len(world.session().tokens) == 6
