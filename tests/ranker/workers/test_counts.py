"""Counts of several processes: added up whatever they count, and a tally that comes back as it was."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranker.answers import EventAnswer, RankAnswer
from ranker.api.counted import both, counted
from ranker.api.tally import Tally
from ranker.workers.counts import added, unpacked, with_totals
from ranker.workers.errors import FeedError

NUMBERS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9))


@given(NUMBERS, NUMBERS)
def test_numbers_add_up_name_by_name(one: dict[str, int], other: dict[str, int]) -> None:
    total = added({"a": one}, {"a": other})["a"]
    assert total == {name: one.get(name, 0) + other.get(name, 0) for name in one.keys() | other.keys()}


@pytest.mark.parametrize(
    ("one", "other"), [({"a": 1}, {"a": [1]}), ({"a": [1]}, {"a": [1, 2]}), ({"a": "x"}, {"a": 1})]
)
def test_counts_that_do_not_fit_are_named(one: dict[str, Any], other: dict[str, Any]) -> None:
    with pytest.raises(FeedError, match="'a'"):
        added(one, other)


def test_totals_are_added_to_a_status_and_the_rest_of_it_stays() -> None:
    own = {"version": "7", "loads": 1, "users": 5, "engine": {"answered": 3, "late_share": 0.5}}
    others = {"loads": 2, "users_lost": 4, "engine": {"answered": 10, "rejections": {"deadline": 1}}}
    assert with_totals(own, others) == {
        "version": "7", "loads": 3, "users": 5, "users_lost": 4,
        "engine": {"answered": 13, "late_share": 0.5, "rejections": {"deadline": 1}},
    }  # fmt: skip
    assert with_totals(own, {}) == own
    assert with_totals({"engine": None}, {"engine": {"answered": 1}}) == {"engine": {"answered": 1}}
    assert with_totals({}, others) == others


def test_bytes_that_are_no_counts_are_refused() -> None:
    with pytest.raises(FeedError):
        unpacked(b"\xc1")


def tally_of(times: int) -> Tally:
    tally = Tally()
    for _ in range(times):
        tally.answered("/v1/rank", 200, 12.0)
        tally.answered("/v1/users/{user}", 404, 1.5)
        tally.disconnected("/v1/rank")
        tally.ranked(RankAnswer("r", [], "live", {}, ["empty"], {"light": 0.3, "total": 400.0}))
        tally.ingested([EventAnswer("e", "accepted"), EventAnswer("f", "refused", "too_old")])
    return tally


def test_a_tally_goes_over_the_feed_and_is_added_as_if_one_process_had_counted_all() -> None:
    over = unpacked(msgspec.msgpack.encode(counted(tally_of(2))))
    assert counted(both(tally_of(3), over)) == counted(tally_of(5))
    assert counted(both(tally_of(3), {})) == counted(tally_of(3))
