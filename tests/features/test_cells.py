"""Counters: decayed sums by their closed form, whatever the order, and tables that stay bounded."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.cells import (
    ACCEPTED,
    CELL_BYTES,
    FAST_HALF_LIFE_S,
    KINDS,
    LAST_DISMISSED,
    LAST_OFFERED,
    LAST_USEFUL,
    OFFERED,
    REFERENCE,
    SELF,
    SLOW_HALF_LIFE_S,
    WIDTH,
    Cells,
    CounterTable,
    decayed,
)

NOW_S = 1_700_000_000.0
Credit = tuple[str, float]

TIMES = st.integers(0, 40 * 86400).map(lambda gap: NOW_S - gap) | st.sampled_from([NOW_S, NOW_S - 1.5, 0.0])
CREDITS = st.lists(st.tuples(st.sampled_from(["offered", "seen", "accepted", "completed", "dismissed", "self"]), TIMES))


def cell_of(credits: Sequence[Credit], action: str = "a") -> Cells:
    table = CounterTable()
    for kind, time_s in credits:
        table.credit(kind, (action,), time_s)
    cell: Cells = table.gather((action,))[0]
    return cell


def closed_form(credits: Sequence[Credit], kinds: set[str], half_life_s: float) -> float:
    return sum(math.exp2(-(NOW_S - time_s) / half_life_s) for kind, time_s in credits if kind in kinds)


@given(CREDITS)
def test_sums_are_those_of_the_closed_form(credits: list[Credit]) -> None:
    recent = decayed(cell_of(credits)[None, :], NOW_S)[0]
    expected = [
        closed_form(credits, kinds, half_life_s)
        for half_life_s in (FAST_HALF_LIFE_S, SLOW_HALF_LIFE_S)
        for kinds in ({"offered"}, {"accepted", "self"})
    ]
    assert recent == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(CREDITS, st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(credits: list[Credit], shuffle: random.Random) -> None:
    other = list(credits)
    shuffle.shuffle(other)
    assert cell_of(credits) == pytest.approx(cell_of(other), rel=1e-9, abs=1e-12)


@given(CREDITS)
def test_counts_and_last_times_are_plain(credits: list[Credit]) -> None:
    cell = cell_of(credits)
    for kind, column in KINDS.items():
        if kind != "undone":
            assert cell[column] == sum(name == kind for name, _ in credits)
    for column, kinds in (
        (LAST_OFFERED, {"offered"}),
        (LAST_USEFUL, {"accepted", "self"}),
        (LAST_DISMISSED, {"dismissed"}),
    ):
        assert cell[column] == max((time_s for kind, time_s in credits if kind in kinds), default=0.0)
    assert cell[REFERENCE] == max((time_s for _, time_s in credits), default=0.0)


def test_an_hour_halves_the_fast_sum_and_a_week_the_slow_one() -> None:
    cell = cell_of([("accepted", NOW_S)])[None, :]
    assert decayed(cell, NOW_S + 3600.0)[0] == pytest.approx([0, 0.5, 0, 2 ** (-1 / 168)])
    assert decayed(cell, NOW_S + 7 * 86400.0)[0][3] == pytest.approx(0.5)
    assert decayed(cell, NOW_S - 86400.0)[0] == pytest.approx([0, 1, 0, 1]), (
        "a moment before the last event counts as it"
    )


@given(st.lists(st.tuples(st.sampled_from(["accepted", "undone", "self", "offered"]), TIMES)))
def test_an_undo_never_takes_a_cell_below_zero(credits: list[Credit]) -> None:
    assert (cell_of(credits) >= 0.0).all()


def test_an_undo_takes_back_its_accept() -> None:
    cell = cell_of([("accepted", NOW_S - 3600.0), ("accepted", NOW_S), ("undone", NOW_S + 5.0)])
    assert cell[ACCEPTED] == 1
    assert decayed(cell[None, :], NOW_S + 5.0)[0, 1] == pytest.approx(0.5, abs=0.01)


def test_the_action_that_moved_longest_ago_makes_room_and_ties_go_by_name() -> None:
    table = CounterTable(limit=3)
    table.credit("offered", ("c", "b", "a"), NOW_S)
    table.credit("seen", ("a",), NOW_S + 1)
    assert table.victim("a") is None
    assert table.victim("d") == "b"
    table.credit("offered", ("d",), NOW_S + 2)
    assert sorted(table) == ["a", "c", "d"]
    table.credit("offered", ("e",), NOW_S - 100)
    assert sorted(table) == ["a", "d", "e"], "a late event brings its action in too"
    assert table.victim("f") == "e"


def test_the_total_never_leaves() -> None:
    table = CounterTable(limit=2)
    table.credit("offered", ("",), 1.0)
    for number in range(5):
        table.credit("offered", (str(number), ""), 10.0 + number)
    assert sorted(table) == ["", "4"]
    assert table.gather(("",))[0, OFFERED] == 6


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(list(KINDS)), TIMES), max_size=60))
def test_a_bounded_table_holds_what_a_dictionary_would(credits: list[tuple[str, str, float]]) -> None:
    table, model, moved = CounterTable(limit=4), dict[str, list[Credit]](), dict[str, float]()
    for action, kind, time_s in credits:
        if action not in model and len(model) == 4:
            stalest = min(model, key=lambda name: (moved[name], name))
            del model[stalest], moved[stalest]
        model.setdefault(action, []).append((kind, time_s))
        moved[action] = max(moved.get(action, 0.0), time_s)
        table.credit(kind, (action,), time_s)
    assert set(table) == set(model)
    for action, own in model.items():
        assert np.array_equal(table.gather((action,))[0], cell_of(own))
    assert table.totals()[SELF] == sum(kind == "self" for own in model.values() for kind, _ in own)


@given(st.lists(st.tuples(st.text(max_size=3), st.sampled_from(list(KINDS)), TIMES), max_size=30))
def test_a_packed_table_comes_back_and_goes_on_the_same(credits: list[tuple[str, str, float]]) -> None:
    table = CounterTable(limit=5)
    for action, kind, time_s in credits:
        table.credit(kind, (action,), time_s)
    actions, packed = table.to_bytes()
    back = CounterTable.from_bytes(actions, packed, limit=5)
    assert len(packed) == len(table) * CELL_BYTES
    assert back.to_bytes() == (actions, packed)
    for each in (table, back):
        for action in ("new", "newer", *actions):
            each.credit("offered", (action,), NOW_S)
    assert back.to_bytes() == table.to_bytes()


def test_a_cut_pack_is_refused() -> None:
    table = CounterTable()
    table.credit("seen", ("a", "b"), NOW_S)
    actions, packed = table.to_bytes()
    for wrong in (packed[:-1], packed[:-CELL_BYTES], packed + bytes(8)):
        with pytest.raises(ValueError, match="cells of"):
            CounterTable.from_bytes(actions, wrong)
    with pytest.raises(ValueError, match="cells of"):
        CounterTable.from_bytes(["a", "a"], packed)


def test_gathering_gives_copies_and_zeros_for_the_unknown() -> None:
    table = CounterTable()
    assert table.gather(("x", "y")).shape == (2, WIDTH)
    table.credit("seen", ("a",), NOW_S)
    cells = table.gather(("x", "a", "a"))
    assert not cells[0].any()
    cells[:] = 7.0
    assert table.gather(("a",))[0, 1] == 1.0
    assert table.cell("x") is None
    table.put("a", None)
    assert len(table) == 0
