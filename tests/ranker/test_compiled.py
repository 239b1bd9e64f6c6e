"""The compiled catalogue follows the catalogue, whatever happens to it."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from features.catalogue import ActionSpec, Catalogue
from features.events import Context
from ranker import compiled as module
from ranker.compiled import ABSENT, CompiledCatalogue
from ranker.judges import Refusals
from tests.fakes import catalogue, context

specs = st.fixed_dictionaries(
    {},
    optional={
        "off": st.booleans(),
        "surfaces": st.lists(st.sampled_from("xyz"), max_size=2),
        "regions": st.lists(st.sampled_from("xyz"), max_size=2),
        "min_age": st.integers(0, 20),
    },
)
changes = st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | specs), max_size=30)


def reasons(compiled: CompiledCatalogue, names: str, where: Context) -> list[str]:
    refusals = Refusals(len(names))
    compiled.refuse(refusals, compiled.rows(names), where, 0.0)
    return refusals.verdicts().reasons


@settings(max_examples=100, deadline=None)
@given(changes, st.sampled_from("xyz"))
def test_after_any_changes_it_is_what_a_fresh_compilation_would_be(
    history: list[tuple[str, dict[str, Any] | None]], surface: str
) -> None:
    live = Catalogue()
    followed = CompiledCatalogue(live)
    where = context(surface=surface, region=surface)
    for name, fields in history:
        if fields is None:
            live.remove(name)
        else:
            live.put(name, msgspec.convert(fields, ActionSpec))
        fresh = CompiledCatalogue(Catalogue(dict(live.items())))
        assert reasons(followed, "abcdefg", where) == reasons(fresh, "abcdefg", where)
        assert {followed.name(row) for row in followed.all_rows().tolist()} == set(live)
        ages = followed.column("min_age", followed.rows(list(live))).tolist()
        assert ages == [spec.min_age for _, spec in live.items()]


def test_what_is_not_there_has_the_absent_row() -> None:
    compiled = catalogue({"a": {}})
    assert compiled.rows(["b", "a", ""]).tolist() == [ABSENT, 1, ABSENT]
    assert reasons(compiled, "ab", context()) == ["", "withdrawn"]


def test_no_candidates_have_no_rows_whoever_was_asked_about_before() -> None:
    compiled = catalogue({"a": {}, "b": {}})
    assert compiled.rows(["a", "b"]).tolist() == [1, 2]
    assert compiled.rows(()).tolist() == []
    assert compiled.rows(("b",)).tolist() == [2]
    assert compiled.rows([]).tolist() == []
    assert compiled.rows(()).tolist() == []


def test_conditions_that_no_action_has_any_more_are_forgotten() -> None:
    live = Catalogue()
    compiled = CompiledCatalogue(live)
    for number in range(13 * module.SLACK_CONDITIONS):
        live.put("a", ActionSpec(surfaces=[str(number)]))
        compiled.rows(["a"])
    assert len(compiled.dimensions["surface"]) <= 11 * module.SLACK_CONDITIONS
    assert reasons(compiled, "a", context(surface=str(13 * module.SLACK_CONDITIONS - 1))) == [""]


def test_verdicts_on_many_different_contexts_are_bounded() -> None:
    compiled = catalogue({"a": {"surfaces": ["home"]}})
    for number in range(3000):
        assert reasons(compiled, "a", context(surface=f"s{number}")) == ["surface"]
    assert len(compiled.dimensions["surface"]._verdicts) <= 1024
