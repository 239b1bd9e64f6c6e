"""Table keys: the same situation gives the same keys, a different one others, whatever the app sends."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from features.events import Context
from features.population import EVERYTHING
from features.rows import Done, SessionRow, Token
from features.situation import FAMILIES, list_fields, scalar_fields, situation_keys, table_key


def context(**fields: Any) -> Context:
    return msgspec.convert(fields, Context)


def session(actions: str = "", words: str = "") -> SessionRow:
    return SessionRow(
        tokens=[Token(float(place), place, word) for place, word in enumerate(words.split())],
        actions=[Done(float(place), place, action) for place, action in enumerate(actions.split())],
    )


def changed(one: dict[str, str], other: dict[str, str]) -> set[str]:
    assert one.keys() == other.keys()
    return {family for family in one if one[family] != other[family]}


def test_everything_comes_first_and_every_family_has_a_key() -> None:
    keys = situation_keys(Context(), None)
    assert next(iter(keys.items())) == (EVERYTHING, EVERYTHING)
    assert set(keys) == {EVERYTHING, *FAMILIES}
    assert all(key.startswith(f"{family}:") for family, key in keys.items() if family != EVERYTHING)
    assert keys == situation_keys(Context(), SessionRow())


def test_each_part_of_the_context_moves_its_own_families() -> None:
    bare = situation_keys(Context(), None)
    assert changed(bare, situation_keys(context(surface="chat"), None)) == {"surface", "trigger"}
    assert changed(bare, situation_keys(context(locale="en"), None)) == {"surface"}
    assert changed(bare, situation_keys(context(trigger={"type": "t"}), None)) == {"trigger", "fields"}
    assert changed(bare, situation_keys(context(entities=[{"id": "1", "type": "image"}]), None)) == {"entities"}
    assert changed(bare, situation_keys(context(region="DE", text="hello", fields={"_hidden": "x"}), None)) == set()
    within = {family for family in FAMILIES if family.startswith(("last", "path"))} | {"fields"}
    assert changed(bare, situation_keys(context(fields={"task": "x"}), None)) == within


def test_the_last_actions_move_families_of_their_order() -> None:
    one = situation_keys(Context(), session("a b c d", "p q r s t"))
    assert changed(one, situation_keys(Context(), session("x b c d", "x q r s t"))) == set()
    assert changed(one, situation_keys(Context(), session("a x c d", "p x r s t"))) == {"last3", "path4"}
    assert changed(one, situation_keys(Context(), session("a b c x", "p q r s x"))) == {
        family for family in FAMILIES if family.startswith(("last", "path"))
    }


def test_kinds_of_entities_count_once_and_in_no_order() -> None:
    def key(*kinds: str) -> str:
        return situation_keys(context(entities=[{"id": str(i), "type": k} for i, k in enumerate(kinds)]), None)[
            "entities"
        ]

    assert key("image", "link") == key("link", "image", "link") != key("image")


PARTS = st.lists(st.text(max_size=3) | st.sampled_from(["\x00", "1:a", "a", ""]), max_size=4)


@given(PARTS, PARTS)
def test_different_parts_never_run_together(one: list[str], other: list[str]) -> None:
    assert (table_key("f", one) == table_key("f", other)) == (one == other)


def test_fields_become_words_by_name_short_and_few() -> None:
    fields = {"b": "x", "a": True, "c": 7, "d": 1.5, "e": None, "f": ["x"], "g": {"h": 1}, "_i": "secret"}
    assert scalar_fields(fields) == ["a=True", "b=x", "c=7"]
    assert list_fields({"f": ["x", 3, ["y"], "z"], "_g": ["secret"], "h": "x"}) == ["f=x", "f=z"]
    assert scalar_fields({"n" * 100: "v" * 100}) == ["n" * 64 + "=" + "v" * 64]


JSON = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=10), max_leaves=6
)


@given(st.dictionaries(st.text(max_size=80), JSON, max_size=12))
def test_no_fields_give_more_or_longer_words_than_the_bounds(fields: dict[str, Any]) -> None:
    scalars, lists = scalar_fields(fields), list_fields(fields)
    assert len(scalars) <= 8
    assert len(lists) <= 32 * 8
    assert all(len(word) <= 64 + 1 + 64 for word in [*scalars, *lists])


def test_a_thousand_fields_and_hostile_values_give_keys() -> None:
    fields: dict[str, Any] = {f"f{number}": number for number in range(1000)}
    fields |= {"a": "🦜" * 4096, "b": [[1], ["x"]] * 1000, "c": float("nan"), "d": 10**400, "e": "\ud800"}
    keys = situation_keys(Context(fields=fields), None)
    assert len(keys) == len(FAMILIES) + 1
    assert all(len(key) < 40 for key in keys.values())
