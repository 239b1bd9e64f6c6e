"""eligibility: each need alone, and all of them against a plain loop."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.catalogue import ActionSpec
from ranker.stages.eligibility import Eligibility
from ranker.types import Ranking, RankRequest
from tests.fakes import NOON_S, catalogue, ranking


def verdict(spec: dict[str, Any], target: str | None = None, **context: Any) -> str:
    compiled = catalogue({"a": spec})
    verdicts = Eligibility(compiled).judge(ranking(compiled, [("a", target)], context=context))
    return verdicts.reasons[0]


@pytest.mark.parametrize(
    ("spec", "context", "reason"),
    [
        ({}, {}, ""),
        ({"off": True}, {}, "off"),
        ({"expires": "2023-11-14T22:13:20Z"}, {}, "expired"),
        ({"expires": "2023-11-14T22:13:20.001Z"}, {}, ""),
        ({"surfaces": ["home"]}, {"surface": "home"}, ""),
        ({"surfaces": ["home"]}, {"surface": "car"}, "surface"),
        ({"surfaces": ["home"]}, {}, "surface"),
        ({"locales": ["en"]}, {"locale": "en-GB"}, ""),
        ({"locales": ["EN_gb"]}, {"locale": "en-GB"}, ""),
        ({"locales": ["en"]}, {"locale": "eng"}, "locale"),
        ({"locales": ["en-GB"]}, {"locale": "en"}, "locale"),
        ({"locales": ["en"]}, {}, "locale"),
        ({"regions": ["GB"]}, {"region": "GB"}, ""),
        ({"regions": ["GB"]}, {}, "region"),
        ({"permissions": ["photos", "phone"]}, {"permissions": ["phone", "photos", "more"]}, ""),
        ({"permissions": ["photos", "phone"]}, {"permissions": ["phone"]}, "permission"),
        ({"min_app_version": "1.9"}, {"app_version": "1.10"}, ""),
        ({"min_app_version": "1.10"}, {"app_version": "1.9"}, "app_version"),
        ({"min_app_version": "2"}, {"app_version": "2.0.0"}, ""),
        ({"max_app_version": "2.0"}, {"app_version": "2"}, ""),
        ({"max_app_version": "2.0"}, {"app_version": "2.0.1"}, "app_version"),
        ({"min_app_version": "1"}, {"app_version": "1.x"}, "app_version"),
        ({"min_app_version": "1"}, {"app_version": "9" * 250}, "app_version"),
        ({"min_app_version": "newest"}, {"app_version": "5"}, "app_version"),
        ({"min_app_version": "1"}, {}, "app_version"),
        ({}, {"app_version": "garbage"}, ""),
    ],
)
def test_a_need_of_the_context(spec: dict[str, Any], context: dict[str, Any], reason: str) -> None:
    assert verdict(spec, **context) == reason


IMAGES = [{"id": "1", "type": "image"}, {"id": "b:c", "type": "a"}, {"id": "c", "type": "a:b"}]


@pytest.mark.parametrize(
    ("types", "target", "reason"),
    [
        (["image"], "image:1", ""),
        (["image", "link"], "image:1", ""),
        (["image"], None, "target_missing"),
        (["image"], "image:2", "target_missing"),
        (["link"], "image:1", "target_type"),
        (["a"], "a:b:c", ""),
        (["a:b"], "a:b:c", ""),
        ([], "anything", ""),
        ([], None, ""),
    ],
)
def test_a_need_of_a_target(types: list[str], target: str | None, reason: str) -> None:
    assert verdict({"entity_types": types}, target, entities=IMAGES) == reason


def test_an_action_that_has_left_the_catalogue_is_withdrawn() -> None:
    compiled = catalogue({"a": {}, "b": {}})
    state = ranking(compiled, ["a", "b"])
    compiled.catalogue.remove("a")
    result = asyncio.run(Eligibility(compiled).run(state))
    assert result.candidates.actions == ("b",)
    assert [(drop.stage, drop.action, drop.reason) for drop in result.drops] == [("eligibility", "a", "withdrawn")]


def one_by_one(spec: ActionSpec, target: str | None, request: RankRequest, now_s: float) -> bool:
    """The same rules for one candidate, in the plainest way."""
    context = request.context

    def number(version: str) -> list[int] | None:
        parts = version.split(".")
        return [*map(int, parts), *[0] * (4 - len(parts))] if all(part.isdigit() for part in parts) else None

    def version_ok() -> bool:
        bounds = [bound for bound in (spec.min_app_version, spec.max_app_version) if bound is not None]
        if not bounds:
            return True
        mine = number(context.app_version) if context.app_version is not None else None
        least, most = (number(b) if b is not None else None for b in (spec.min_app_version, spec.max_app_version))
        if mine is None or (spec.min_app_version and least is None) or (spec.max_app_version and most is None):
            return False
        return (least is None or mine >= least) and (most is None or mine <= most)

    def locale_ok() -> bool:
        if not spec.locales:
            return True
        mine = (context.locale or "").lower()
        return any(mine == wanted.lower() or mine.startswith(wanted.lower() + "-") for wanted in spec.locales)

    about = [entity.target for entity in context.entities if entity.type in spec.entity_types]
    return (
        not spec.off
        and (spec.expires is None or spec.expires.timestamp() > now_s)
        and (not spec.surfaces or context.surface in spec.surfaces)
        and locale_ok()
        and (not spec.regions or context.region in spec.regions)
        and version_ok()
        and set(spec.permissions) <= set(context.permissions)
        and (not spec.entity_types or target in about)
    )


versions = st.sampled_from(["1", "1.0", "1.9", "1.10", "2.0.1", "x"])
moments = st.sampled_from([NOON_S - 1, NOON_S, NOON_S + 1]).map(lambda s: datetime.fromtimestamp(s, UTC))


def some(*values: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), max_size=2)


specs = st.fixed_dictionaries(
    {},
    optional={
        "surfaces": some("home", "car"),
        "locales": some("en", "en-GB", "DE"),
        "regions": some("GB", "DE"),
        "permissions": some("photos", "phone"),
        "entity_types": some("image", "link"),
        "min_app_version": versions,
        "max_app_version": versions,
        "off": st.booleans(),
        "expires": moments,
    },
)
contexts = st.fixed_dictionaries(
    {
        "entities": st.lists(
            st.fixed_dictionaries({"id": st.sampled_from("12"), "type": st.sampled_from(["image", "link"])}), max_size=3
        )
    },
    optional={
        "surface": st.sampled_from(["home", "car"]),
        "locale": st.sampled_from(["en", "en-GB", "de-DE", "EN-gb"]),
        "region": st.sampled_from(["GB", "FR"]),
        "permissions": some("photos", "phone"),
        "app_version": versions,
    },
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(specs, st.sampled_from([None, "image:1", "link:2"])), min_size=1, max_size=8), contexts)
def test_all_candidates_at_once_are_judged_as_one_by_one(
    rows: list[tuple[dict[str, Any], str | None]], context: dict[str, Any]
) -> None:
    compiled = catalogue({str(number): spec for number, (spec, _) in enumerate(rows)})
    state: Ranking = ranking(
        compiled, [(str(number), target) for number, (_, target) in enumerate(rows)], context=context
    )
    kept = Eligibility(compiled).judge(state).keep.tolist()
    candidates = state.candidates
    expected = [
        one_by_one(spec, target, state.request, NOON_S)
        for spec, target in zip(candidates.specs, candidates.targets, strict=True)
    ]
    assert kept == expected
