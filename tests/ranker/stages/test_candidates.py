"""candidates: the caller's list, every action of a small catalogue, and the best of a large one."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.rows import Done, SessionRow, Token
from features.situation import situation_keys
from ranker.stages.candidates import CandidateSources
from ranker.types import Ranking
from tests.fakes import NOON_S, FakeReader, asked, catalogue, context, known, popular, user

TWO_IMAGES = {"entities": [{"id": "1", "type": "image"}, {"id": "2", "type": "image"}, {"id": "9", "type": "link"}]}


def choose(
    specs: dict[str, dict[str, Any]], reader: FakeReader | None = None, most: int = 200, **fields: Any
) -> Ranking:
    ranking = asked(**fields)
    what = (reader or FakeReader()).what
    stage = CandidateSources(catalogue(specs), most)
    return asyncio.run(stage.run(type(ranking)(**{**ranking.__dict__, "known": what})))


def pairs(ranking: Ranking) -> list[tuple[str, str | None]]:
    return list(zip(ranking.candidates.actions, ranking.candidates.targets, strict=True))


def sources(ranking: Ranking) -> dict[str, str]:
    return dict(zip(ranking.candidates.actions, ranking.candidates.sources, strict=True))


def reasons(ranking: Ranking) -> list[tuple[str, str | None, str]]:
    return [(drop.action, drop.target, drop.reason) for drop in ranking.drops]


def test_the_callers_list_is_taken_in_its_order_and_nothing_is_added() -> None:
    wanted = [{"action": "b", "target": "x:1"}, {"action": "a"}]
    result = choose({"a": {}, "b": {}, "c": {}}, candidates=wanted)
    assert pairs(result) == [("b", "x:1"), ("a", None)]
    assert set(result.candidates.sources) == {"caller"}


def test_unknown_excluded_and_repeated_candidates_of_a_caller_are_dropped_with_the_reason() -> None:
    wanted = [{"action": "a"}, {"action": "new"}, {"action": "a"}, {"action": "b"}]
    result = choose({"a": {}, "b": {}}, candidates=wanted, exclude=["b"])
    assert pairs(result) == [("a", None)]
    assert sorted(reasons(result)) == [
        ("a", None, "duplicate"),
        ("b", None, "excluded"),
        ("new", None, "unknown_action"),
    ]


def test_a_callers_list_is_not_cut_to_the_size_of_an_open_request() -> None:
    specs: dict[str, dict[str, Any]] = {f"a{number}": {} for number in range(50)}
    assert len(choose(specs, most=5, candidates=[{"action": name} for name in specs]).candidates) == 50


def test_an_action_about_images_gives_one_candidate_per_image() -> None:
    result = choose({"save": {"entity_types": ["image"]}, "open": {}}, context=TWO_IMAGES)
    assert sorted(pairs(result), key=str) == [("open", None), ("save", "image:1"), ("save", "image:2")]


def test_an_action_whose_entity_is_not_there_is_a_candidate_without_a_target() -> None:
    assert pairs(choose({"save": {"entity_types": ["image"]}})) == [("save", None)]


def test_the_same_entity_listed_twice_is_one_candidate() -> None:
    same = {"entities": [{"id": "1", "type": "image"}] * 2}
    assert pairs(choose({"save": {"entity_types": ["image"]}}, context=same)) == [("save", "image:1")]


def test_many_entities_do_not_crowd_out_other_actions() -> None:
    images = {"entities": [{"id": str(number), "type": "image"} for number in range(256)]}
    specs: dict[str, dict[str, Any]] = {f"edit{number}": {"entity_types": ["image"]} for number in range(9)}
    result = choose({**specs, "open": {}}, most=40, context=images)
    assert len(result.candidates) == 40
    assert set(result.candidates.actions) == {*specs, "open"}
    assert set(Counter(result.candidates.actions).values()) <= {1, 3, 4, 5}


def test_an_open_request_leaves_out_what_is_excluded() -> None:
    result = choose({"a": {}, "b": {}}, exclude=["b", "unheard of"])
    assert pairs(result) == [("a", None)] and reasons(result) == [("b", None, "excluded")]


def test_each_action_has_the_first_source_that_speaks_for_it() -> None:
    here = context(surface="home", trigger={"type": "image_received"})
    session = SessionRow(NOON_S, NOON_S, 1, [Token(NOON_S, 1, "+open")], [Done(NOON_S, 1, "open")])
    tables = popular({"followed": 2, "repeated": 1}, here, session, ["last1"])
    surface = situation_keys(here, None)["surface"]
    for name in ("liked", "liked", "followed"):
        tables.credit([surface], "accepted", (name,), NOON_S)
    person = user()
    person.counters.credit("self", ("repeated",), NOON_S)
    reader = FakeReader(known(person, tables, session=session))
    specs: dict[str, dict[str, Any]] = {name: {} for name in ("plain", "liked", "followed", "repeated")}
    result = choose(specs, reader, context={"surface": "home", "trigger": {"type": "image_received"}})
    assert list(sources(result).items()) == [
        ("repeated", "repeat"),
        ("followed", "transition"),
        ("liked", "popular"),
        ("plain", "context"),
    ]


LARGE: dict[str, dict[str, Any]] = {
    **{f"plain{number}": {} for number in range(300)},
    **{f"elsewhere{number}": {"surfaces": ["car"]} for number in range(300)},
    **{f"image{number}": {"entity_types": ["image"]} for number in range(20)},
    **{f"link{number}": {"entity_types": ["video"]} for number in range(20)},
    **{f"triggered{number}": {"triggers": ["image_received"]} for number in range(10)},
}
HERE = {"surface": "home", "trigger": {"type": "image_received"}, **TWO_IMAGES}


def test_of_a_large_catalogue_what_the_context_offers_is_chosen() -> None:
    result = choose(LARGE, most=50, context=HERE)
    kinds = Counter(name.rstrip("0123456789") for name in result.candidates.actions)
    assert len(result.candidates) == 50
    assert kinds["triggered"] == 10 and kinds["elsewhere"] == kinds["link"] == 0
    assert {name for name in result.candidates.actions if name.startswith("image")} == {f"image{n}" for n in range(20)}


def test_of_a_large_catalogue_habits_come_first_and_leave_room_for_others() -> None:
    person = user()
    person.counters.credit("self", [f"plain{number}" for number in range(60)], NOON_S)
    result = choose(LARGE, FakeReader(known(person)), most=40, context=HERE)
    assert Counter(result.candidates.sources)["repeat"] == 10
    assert Counter(result.candidates.sources)["context"] >= 25


def test_in_a_large_catalogue_every_action_gets_its_turn() -> None:
    specs: dict[str, dict[str, Any]] = {f"plain{number}": {} for number in range(100)}
    seen: set[str] = set()
    for number in range(60):
        seen.update(choose(specs, most=20, request_id=f"r{number}").candidates.actions)
    assert seen == set(specs)


def test_the_same_id_chooses_the_same_candidates_in_whatever_order_the_catalogue_came() -> None:
    specs: dict[str, dict[str, Any]] = {f"plain{number}": {} for number in range(100)}
    turned = dict(reversed(list(specs.items())))
    assert choose(specs, most=20).candidates.actions == choose(turned, most=20).candidates.actions


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3), st.lists(st.sampled_from(["image", "link", "no"]), max_size=2), max_size=12
    ),
    st.integers(1, 12),
    st.lists(st.text(min_size=1, max_size=3), max_size=3),
)
def test_an_open_request_is_bounded_and_never_repeats_a_candidate(
    types: dict[str, list[str]], most: int, exclude: list[str]
) -> None:
    specs = {name: {"entity_types": kinds} for name, kinds in types.items()}
    result = choose(specs, most=most, exclude=exclude, context=TWO_IMAGES)
    assert len(set(pairs(result))) == len(result.candidates) <= most
    assert set(result.candidates.actions) <= set(specs) - set(exclude)
    if len(specs) <= most:
        assert set(result.candidates.actions) == set(specs) - set(exclude)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_very_few_places_are_filled(most: int) -> None:
    assert len(choose(LARGE, most=most, context=HERE).candidates) == most
