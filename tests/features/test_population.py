"""Population tables: bounded, stored and reloaded, and readable as of a recent offset."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from features import population as module
from features.cells import ACCEPTED, OFFERED, WIDTH, Cells
from features.population import ANY, EVERYTHING, Population

NOW_S = 1_700_000_000.0
ACTIONS = tuple("abcdefgh")
KEYS = (EVERYTHING, *(f"surface:{number}" for number in range(9)))
KINDS = ("offered", "accepted", "undone", "self", "dismissed")

State = dict[tuple[str, str], Cells]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Four actions a table beside the total, seven over everything, a past of five batches."""
    monkeypatch.setattr(module, "MAX_TABLE_ACTIONS", 5)
    monkeypatch.setattr(module, "MAX_GLOBAL_ACTIONS", 7)
    monkeypatch.setattr(module, "RING_BATCHES", 5)
    yield


class Traffic:
    """Random credits, some late, some at equal times."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now_s = NOW_S

    def credit(self, population: Population) -> None:
        draw = self._random
        self._now_s += draw.choice((0.0, 0.0, 5.0, 7000.0))
        late_s = draw.choice((0.0, 0.0, 60.0, 90000.0))
        keys = [EVERYTHING, *draw.sample(KEYS[1:], draw.randrange(3))]
        actions = draw.sample(ACTIONS, draw.randrange(1, 4))
        population.credit(keys, draw.choice(KINDS), actions, self._now_s - late_s)


def everything(population: Population) -> State:
    return {(key, action): table.gather((action,))[0] for key, table in population.tables.items() for action in table}


def same(left: State, right: State) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("seed", range(12))
def test_a_view_shows_every_offset_in_the_ring_as_it_was(seed: int) -> None:
    population, traffic, draw = Population(max_tables=4), Traffic(seed), random.Random(seed)
    past: dict[int, State] = {0: {}}
    views = [population.at(0)]
    offset = 0
    for _ in range(40):
        for _ in range(draw.randrange(4)):
            traffic.credit(population)
        offset += draw.randrange(1, 4)
        population.seal(offset)
        past[offset] = everything(population)
        views.append(population.at(offset))
        for view, (at, before) in zip(views[-6:], list(past.items())[-6:], strict=True):
            assert population.reaches(at)
            for each in (view, population.at(at)):
                assert each.exact
                for key in KEYS:
                    expected = [before.get((key, action), np.zeros(WIDTH)) for action in (*ACTIONS, ANY)]
                    assert np.array_equal(each.gather(key, (*ACTIONS, ANY)), expected)
                    assert np.array_equal(each.total(key), expected[-1])
        if len(past) > 6:
            assert not population.reaches(list(past)[-7])
            assert not views[-7].exact


@pytest.mark.parametrize("seed", range(12))
def test_what_was_sealed_loads_as_the_same_tables_and_goes_on_the_same(seed: int) -> None:
    population, traffic = Population(max_tables=4), Traffic(seed)
    stored: dict[tuple[str, str], bytes] = {}
    for offset in range(1, 41):
        for _ in range(3):
            traffic.credit(population)
        for name, cell in population.seal(offset).items():
            stored.pop(name, None)
            if cell is not None:
                stored[name] = cell
        assert len(population.tables) <= 4
        assert all(len(table) <= (7 if key == EVERYTHING else 5) for key, table in population.tables.items())
        if offset % 7 == 0:
            reloaded = Population(max_tables=4)
            reloaded.load(stored, offset)
            assert reloaded.offset == offset
            assert same(everything(reloaded), everything(population))
            # From here on the reloaded one takes over, and a twin that never stopped must agree with it.
            twin, others = population, Traffic(seed * 1000 + offset)
            again = Traffic(seed * 1000 + offset)
            for step in range(30):
                others.credit(twin)
                again.credit(reloaded)
                assert same(everything(reloaded), everything(twin)), step
            assert reloaded.seal(offset + 1).keys() == {*twin.seal(offset + 1)}
            stored = {name: cell.tobytes() for name, cell in everything(reloaded).items()}
            population = reloaded


def test_a_seal_names_what_changed_and_what_left() -> None:
    population = Population(max_tables=2)
    population.credit([EVERYTHING, "surface:old"], "offered", ("a",), NOW_S)
    changed = population.seal(1)
    assert changed.keys() == {(key, action) for key in (EVERYTHING, "surface:old") for action in ("a", ANY)}
    assert all(cell is not None for cell in changed.values())
    population.credit(["surface:new"], "offered", ("b",), NOW_S + 1)
    changed = population.seal(2)
    assert {name for name, cell in changed.items() if cell is None} == {("surface:old", "a"), ("surface:old", ANY)}
    assert {name for name, cell in changed.items() if cell is not None} == {("surface:new", "b"), ("surface:new", ANY)}
    assert population.seal(3) == {}


def test_the_table_over_everything_never_makes_room() -> None:
    population = Population(max_tables=2)
    population.credit([EVERYTHING], "offered", ("a",), NOW_S - 1e6)
    for number in range(4):
        population.credit([f"surface:{number}"], "offered", ("a",), NOW_S + number)
    assert set(population.tables) == {EVERYTHING, "surface:3"}


def test_totals_count_a_list_once_and_each_outcome() -> None:
    population = Population()
    population.credit([EVERYTHING], "offered", ("a", "b", "c"), NOW_S)
    population.credit([EVERYTHING], "accepted", ("a",), NOW_S)
    total = population.at().total(EVERYTHING)
    assert (total[OFFERED], total[ACCEPTED]) == (1, 1)
    assert population.at().gather(EVERYTHING, ("a", "b"))[:, OFFERED].tolist() == [1, 1]
    assert population.at().actions(EVERYTHING) == ["a", "b", "c"]
    assert not population.at().total("surface:never").any()


def test_what_a_view_gives_can_be_changed_without_harm() -> None:
    population = Population()
    population.credit([EVERYTHING], "offered", ("a",), NOW_S)
    view = population.at()
    view.gather(EVERYTHING, ("a",))[:] = 9.0
    view.total(EVERYTHING)[:] = 9.0
    assert view.gather(EVERYTHING, ("a",))[0, OFFERED] == 1
    assert view.total(EVERYTHING)[OFFERED] == 1
