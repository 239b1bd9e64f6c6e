"""What requests remember of population tables is never what the tables no longer say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features import population as module
from features import slot_index
from features.cells import ACCEPTED, SELF, Cells
from features.population import ANY, EVERYTHING, Population, PopulationView
from features.slot_index import SlotIndex

KEYS = (EVERYTHING, "surface:1", "path1:1", "path2:9")
ACTIONS = tuple("abcdefg")
NAMES = (*ACTIONS, "never seen", ANY)

steps = st.lists(
    st.tuples(
        st.sampled_from(["offered", "accepted", "self", "undone", "dismissed"]),
        st.sets(st.sampled_from(KEYS), min_size=1),
        st.sampled_from(ACTIONS),
        st.booleans(),
    ),
    max_size=40,
)


def plain(view: PopulationView, names: Sequence[str]) -> Cells:
    return np.array([view.gather(key, names) for key in KEYS])


def agrees(view: PopulationView, names: Sequence[str]) -> bool:
    expected = plain(view, names)
    useful = expected[:, :, ACCEPTED] + expected[:, :, SELF]
    return np.array_equal(view.gather_all(KEYS, names), expected) and np.array_equal(
        view.useful_all(KEYS, names), useful
    )


@pytest.mark.parametrize("limit", [3, 2000], ids=["tables that are full", "tables with room"])
@settings(max_examples=60, deadline=None)
@given(history=steps, max_tables=st.sampled_from([2, 100]))
def test_what_is_remembered_is_what_the_tables_say_now_and_said_before(
    limit: int, history: list[tuple[str, set[str], str, bool]], max_tables: int
) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(module, "MAX_TABLE_ACTIONS", limit)
    try:
        population = Population(max_tables)
        views: list[tuple[PopulationView, Cells]] = []
        for offset, (kind, keys, action, ask_first) in enumerate(history, start=1):
            if ask_first:
                assert agrees(population.at(), NAMES)
            population.credit(sorted(keys), kind, (action,), float(offset))
            population.seal(offset)
            views.append((population.at(), plain(population.at(), NAMES)))
            assert agrees(population.at(), NAMES)
            assert agrees(population.at(), NAMES[::-1])
            for earlier, said in views[-5:]:
                assert np.array_equal(plain(earlier, NAMES), said)
                assert agrees(earlier, NAMES)
    finally:
        patch.undo()


def test_tables_that_were_loaded_anew_are_asked_anew() -> None:
    population = Population()
    population.credit(KEYS, "accepted", ("a",), 1.0)
    cells = {name: cell for name, cell in population.seal(1).items() if cell is not None}
    assert agrees(population.at(), NAMES)
    population.credit(KEYS, "accepted", ("a",), 2.0)
    population.seal(2)
    assert population.at().useful_all(KEYS, ("a",)).tolist() == [[2.0]] * len(KEYS)
    population.load(cells, 1)
    assert population.at().useful_all(KEYS, ("a",)).tolist() == [[1.0]] * len(KEYS)
    assert agrees(population.at(), NAMES)


def test_more_actions_than_have_numbers_are_looked_up_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_index, "MAX_NUMBERS", 5)
    population = Population()
    population.credit(KEYS, "accepted", ("a", "g"), 1.0)
    population.seal(1)
    assert agrees(population.at(), NAMES)
    assert len(population.index) == 0
    assert agrees(population.at(), ("a", "b"))
    assert len(population.index) == 2


def test_only_so_many_tables_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_index, "MAX_REMEMBERED", 10 * 64)
    population = Population()
    for number in range(100):
        key = f"path1:{number}"
        population.credit((key,), "self", ("a",), 1.0)
        assert population.at().useful_all((key,), ("a", "b")).tolist() == [[1.0, 0.0]]
    assert len(population.index.useful) == 10


def test_numbers_stay_with_their_actions() -> None:
    index = SlotIndex()
    first = index.numbers(("a", "b"))
    again = index.numbers(["b", "c", "a"])
    assert first is not None and again is not None
    assert [again[2], again[0]] == first.tolist()
    assert sorted(again.tolist()) == [0, 1, 2]
