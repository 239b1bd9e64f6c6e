"""Packed rows: bounded, and the same after a round trip; keys that no hostile id can confuse."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features import rows
from features.events import ForgetEvent, RankingEvent, UserEvent
from features.rows import Done, OfferedItem, RankingRow, SaidText, SessionRow, Token, User

NOW = datetime(2024, 1, 1, tzinfo=UTC)
IDS = st.text(min_size=1, max_size=4) | st.sampled_from(["a", "ab", "a:b", "b", "\x00", "\ud800", "🦜"])


def test_a_user_comes_back_from_its_pack() -> None:
    user = User()
    user.counters.credit("accepted", ("crop", "🦜"), 5.0)
    user.remember(Done(2.0, 7, "crop"))
    user.offered("crop", 1.0)
    user.row.profile = {"age": 34, "wide": 2**64 - 1, "list": [1.5, None, "x"], "in": {"a": True}}
    user.row.sessions, user.row.rankings = {"s:1": 3.0}, ["r:1"]
    packed = user.pack()
    back = User.unpack(packed)
    assert back.row == user.row
    assert back.counters.to_bytes() == user.counters.to_bytes()
    assert back.pack() == packed


def test_sessions_rankings_and_times_come_back_from_their_packs() -> None:
    session = SessionRow(
        9.0, 1.0, 3, [Token(1.0, 2, "said")], [Done(1.0, 2, "a")], [SaidText(1.0, 2, "s", b"1234", b"")]
    )
    ranking = RankingRow(9.0, "u", None, ["g"], [OfferedItem("a", "image:1", 3, 4.0), OfferedItem("b", None)])
    assert rows.unpack_session(rows.pack(session)) == session
    assert rows.unpack_ranking(rows.pack(ranking)) == ranking
    assert rows.unpack_time(rows.pack(1.25)) == 1.25


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.0]), st.integers(0, 99)), max_size=30))
def test_a_bounded_list_keeps_the_latest_by_time_then_offset(times: list[tuple[float, int]]) -> None:
    kept: list[Done] = []
    for time_s, offset in times:
        rows.insert_bounded(kept, Done(time_s, offset, "a"), 5)
    assert [(done.time_s, done.offset) for done in kept] == sorted(times)[-5:]


def test_offers_are_bounded_by_action_and_by_time() -> None:
    user = User()
    for number in range(200):
        for time_s in range(40):
            user.offered(f"action {number}", number * 100.0 + time_s)
    assert len(user.row.offers) == rows.MAX_USER_ACTIONS
    assert user.offers_since("action 199", 0.0) == 32
    assert user.offers_since("action 199", 199 * 100.0 + 30) == 10
    assert user.offers_since("action 0", 0.0) == 0


@given(st.tuples(IDS, IDS), st.tuples(IDS, IDS))
def test_two_pairs_of_ids_never_share_a_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    for key in (rows.session_key, rows.ranking_key):
        assert (key(*one) == key(*other)) == (one == other)
    assert (rows.user_key(one[0]) == rows.user_key(other[0])) == (one[0] == other[0])


def test_only_a_rankings_id_belongs_to_its_user() -> None:
    def ranking(user: str) -> RankingEvent:
        return RankingEvent(id="1", time=NOW, user=user)

    assert rows.id_key(ranking("a")) != rows.id_key(ranking("b"))
    assert rows.id_key(UserEvent(id="1", time=NOW, user="a")) == rows.id_key(ForgetEvent(id="1", time=NOW, user="b"))
    assert rows.id_key(ranking("a")) != rows.id_key(UserEvent(id="1", time=NOW, user="a"))


def test_no_id_can_be_read_in_a_key_and_each_kind_has_its_life() -> None:
    keys = [rows.user_key("ann"), rows.session_key("ann", "s"), rows.ranking_key("ann", "r")]
    assert not any("ann" in key for key in keys)
    assert rows.session_key("ann", None) == rows.session_key("ann", "")
    assert [rows.life_s(key) for key in keys] == [90 * 86400, 86400, 7 * 86400]


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (2**64 - 1, True),
        (2**64, False),
        (-(2**63) - 1, False),
        ("x" * 4000, True),
        ("x" * 5000, False),
        ([2**70], False),
    ],
)
def test_a_profile_field_is_storable_if_it_packs_into_its_room(value: object, fits: bool) -> None:
    assert rows.storable("name", value) == fits


def test_a_profile_name_and_deep_nesting_count_too() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert not rows.storable("n" * 5000, 1)
    assert not rows.storable("n", deep)


def test_pack_sizes_of_random_tables_survive_growth() -> None:
    user = User()
    for number in range(300):
        user.counters.credit("offered", (f"a{random.Random(number).randrange(200)}",), float(number))
        user = User.unpack(user.pack())
    assert len(user.counters) == rows.MAX_USER_ACTIONS
