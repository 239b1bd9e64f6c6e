"""Traits say of every rule at least what it looks at: a rule that is passed over would have refused nobody."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.catalogue import ActionSpec, Catalogue
from ranker import conditions, traits
from ranker.compiled import ABSENT, CompiledCatalogue
from ranker.judges import Refusals
from ranker.policy_config import PolicyConfig
from ranker.policy_rules import Case, rules
from tests.fakes import NOON_S, catalogue, context, known, ranking, user

FIELDS: dict[str, dict[str, Any]] = {
    "off": {"off": True},
    "expires": {"expires": "2031-01-01T00:00:00Z"},
    "min_age": {"min_age": 18},
    "consent": {"consent": "ads"},
    "class": {"safety_class": "promotion"},
    "interrupts": {"fields": {"interrupting": True}},
    "cap": {"max_offers_per_day": 1},
    "cooldown": {"cooldown_s": 60.0},
    "target": {"entity_types": ["image"]},
    "target_age": {"max_target_age_s": 60.0},
    "group": {"exclusive_group": "g"},
    "text_check": {"needs_text_check": True},
}

CONFIGS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "with defaults for all": {"offers_per_day": 1, "cooldown_s": 3600.0},
    "with named actions": {
        "quiet_hours": {"start": "00:00", "end": "23:59", "actions": ["a"]},
        "sensitive": [{"name": "s", "triggers": ["t"], "withhold_actions": ["b"], "withhold_classes": ["promotion"]}],
    },
}

specs = st.dictionaries(st.sampled_from(sorted(FIELDS)), st.booleans(), max_size=4).map(
    lambda chosen: {name: value for field, is_on in chosen.items() if is_on for name, value in FIELDS[field].items()}
)


@pytest.mark.parametrize("field", FIELDS)
def test_each_thing_that_can_be_asked_has_a_bit_of_its_own(field: str) -> None:
    bits = {name: traits.traits(msgspec.convert(asked, ActionSpec)) for name, asked in FIELDS.items()}
    assert bits[field].bit_count() == 1
    assert list(bits.values()).count(bits[field]) == 1
    assert traits.traits(ActionSpec()) == 0


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(CONFIGS)), st.fixed_dictionaries({"a": specs, "b": specs, "c": specs}), st.booleans())
def test_a_rule_that_concerns_none_refuses_none(config: str, fields: dict[str, dict[str, Any]], read: bool) -> None:
    compiled = catalogue(fields)
    person = user({"age": 12})
    for name in fields:
        person.offered(name, NOON_S - 1.0)
        person.counters.credit("dismissed", (name,), NOON_S - 1.0)
    where = {"trigger": {"type": "t"}}
    asked = ranking(compiled, [(name, None) for name in fields], what=known(person) if read else None, context=where)
    case = Case(asked, compiled)
    for rule in rules(msgspec.convert(CONFIGS[config], PolicyConfig)):
        if not rule.concerns(case.traits):
            assert not rule.refuses(case).any(), rule
            assert not rule.wants_person(case), rule


def test_traits_follow_the_catalogue() -> None:
    live = Catalogue({"a": ActionSpec()})
    compiled = CompiledCatalogue(live)
    names = ("a", "b")
    assert compiled.traits(compiled.rows(names)) == traits.WITHDRAWN
    live.put("b", ActionSpec(off=True))
    assert compiled.traits(compiled.rows(names)) == traits.OFF
    live.put("b", ActionSpec(min_age=3))
    assert compiled.traits(compiled.rows(names)) == traits.MIN_AGE
    live.remove("a")
    assert compiled.traits(compiled.rows(names)) == traits.WITHDRAWN | traits.MIN_AGE
    assert compiled.traits(np.array([ABSENT])) == traits.WITHDRAWN
    assert compiled.traits(compiled.rows(())) == 0


def test_only_so_many_contexts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "MAX_CACHED_VALUES", 8)
    compiled = catalogue({"a": {"surfaces": ["s1"]}, "b": {}})
    rows = compiled.rows(("a", "b"))
    for number in range(30):
        kept = _kept(compiled, rows, f"s{number}")
        assert kept == [number == 1, True]
        assert len(compiled._conjunction) <= 8


def _kept(compiled: CompiledCatalogue, rows: Any, surface: str) -> list[bool]:
    refusals = Refusals(len(rows))
    compiled.refuse(refusals, rows, context(surface=surface), 0.0)
    kept: list[bool] = refusals.kept.tolist()
    return kept
