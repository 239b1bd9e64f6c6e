"""policy: each rule alone, what happens when personal rows are unknown, and all rules against a plain loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, time
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.known import Known
from features.rows import User
from ranker.config import load_policy
from ranker.degraded import Degraded
from ranker.person import Person
from ranker.policy_config import PolicyConfig, QuietHours
from ranker.policy_rules import find_zone
from ranker.stages.policy import Policy
from ranker.types import Ranking
from tests.fakes import NOON_S, catalogue, known, ranking, unread, user

DAY_S, HOUR_S = 86_400.0, 3_600.0


def policy(**fields: Any) -> PolicyConfig:
    return msgspec.convert({"sensitive": [], **fields}, PolicyConfig)


def verdict(
    spec: dict[str, Any], what: Known | None = None, config: PolicyConfig | None = None, **fields: Any
) -> tuple[str, tuple[Degraded, ...]]:
    compiled = catalogue({"a": spec, "other": {}})
    verdicts = Policy(compiled, config or policy()).judge(ranking(compiled, ["a"], what=what, **fields))
    return verdicts.reasons[0], verdicts.degraded


def offered(*times_s: float) -> User:
    person = user()
    for time_s in times_s:
        person.offered("a", time_s)
    return person


@pytest.mark.parametrize(
    ("own", "default", "times_s", "reason"),
    [
        (2, 0, [NOON_S - 1, NOON_S - 2], "cap"),
        (3, 0, [NOON_S - 1, NOON_S - 2], ""),
        (2, 0, [NOON_S - 1, NOON_S - DAY_S - 1], ""),
        (2, 0, [NOON_S - 1, NOON_S - DAY_S], "cap"),
        (0, 2, [NOON_S - 1, NOON_S - 2], "cap"),
        (5, 2, [NOON_S - 1, NOON_S - 2], "cap"),
        (1, 2, [NOON_S - 1], "cap"),
        (0, 0, [NOON_S - 1] * 32, ""),
    ],
)
def test_an_action_is_offered_so_often_in_a_day(own: int, default: int, times_s: list[float], reason: str) -> None:
    found, _ = verdict({"max_offers_per_day": own}, known(offered(*times_s)), policy(offers_per_day=default))
    assert found == reason


@pytest.mark.parametrize(
    ("own_s", "default_s", "ago_s", "reason"),
    [(60, 0, 59.0, "cooldown"), (60, 0, 60.0, ""), (0, 60, 59.0, "cooldown"), (30, 60, 45.0, ""), (0, 0, 0.0, "")],
)
def test_a_dismissed_action_rests(own_s: float, default_s: float, ago_s: float, reason: str) -> None:
    person = user()
    person.counters.credit("dismissed", ("a",), NOON_S - ago_s)
    assert verdict({"cooldown_s": own_s}, known(person), policy(cooldown_s=default_s))[0] == reason


# 2023-11-14T22:13:20Z is 22:13 in London, 23:13 in Berlin, 14:13 in Los Angeles.
@pytest.mark.parametrize(
    ("context_zone", "profile_zone", "reason"),
    [
        ("Europe/London", None, "quiet_hours"),
        ("America/Los_Angeles", "Europe/London", ""),
        (None, "America/Los_Angeles", ""),
        ("Mars/Olympus", "America/Los_Angeles", ""),
        ("../../etc/passwd", None, "quiet_hours"),
        (None, None, "quiet_hours"),
    ],
)
def test_quiet_hours_go_by_the_users_clock(context_zone: str | None, profile_zone: str | None, reason: str) -> None:
    person = user({"timezone": profile_zone} if profile_zone else {})
    spec = {"fields": {"interrupting": True}}
    assert verdict(spec, known(person), context={"timezone": context_zone})[0] == reason


@pytest.mark.parametrize(
    ("hours", "at", "quiet"),
    [
        (("22:00", "07:00"), "22:00", True),
        (("22:00", "07:00"), "06:59", True),
        (("22:00", "07:00"), "07:00", False),
        (("12:00", "14:00"), "13:00", True),
        (("12:00", "14:00"), "14:00", False),
        (("12:00", "12:00"), "12:00", False),
    ],
)
def test_quiet_hours_may_pass_midnight(hours: tuple[str, str], at: str, quiet: bool) -> None:
    assert QuietHours(start=hours[0], end=hours[1]).cover(time.fromisoformat(at)) is quiet


@pytest.mark.parametrize(
    ("silenced", "spec", "reason"),
    [
        ({"interrupting": False}, {"fields": {"interrupting": True}}, ""),
        ({"classes": ["promotion"]}, {"safety_class": "promotion"}, "quiet_hours"),
        ({"classes": []}, {"safety_class": "promotion"}, ""),
        ({"actions": ["a", "unheard of"]}, {}, "quiet_hours"),
        ({}, {"fields": {"interrupting": "yes"}}, ""),
    ],
)
def test_quiet_hours_silence_what_they_name(silenced: dict[str, Any], spec: dict[str, Any], reason: str) -> None:
    assert verdict(spec, config=policy(quiet_hours=silenced))[0] == reason


# Berlin puts its clocks forward at 2024-03-31T01:00Z and back at 2024-10-27T01:00Z.
@pytest.mark.parametrize(
    ("moment", "zone", "reason"),
    [
        ("2024-03-30T21:30:00+00:00", "Europe/Berlin", "quiet_hours"),  # 22:30, winter
        ("2024-03-31T20:30:00+00:00", "Europe/Berlin", "quiet_hours"),  # 22:30, summer
        ("2024-03-30T20:30:00+00:00", "Europe/Berlin", ""),  # 21:30, winter
        ("2024-03-31T00:59:00+00:00", "Europe/Berlin", "quiet_hours"),  # 01:59, the last minute before 03:00
        ("2024-03-31T05:00:00+00:00", "Europe/Berlin", ""),  # 07:00, an hour sooner than the day before
        ("2024-03-30T05:30:00+00:00", "Europe/Berlin", "quiet_hours"),  # 06:30
        ("2024-10-27T00:30:00+00:00", "Europe/Berlin", "quiet_hours"),  # 02:30 for the first time
        ("2024-10-27T01:30:00+00:00", "Europe/Berlin", "quiet_hours"),  # 02:30 for the second time
        ("2024-10-27T05:30:00+00:00", "Europe/Berlin", "quiet_hours"),  # 06:30, an hour later than the day before
        ("2024-10-27T06:00:00+00:00", "Europe/Berlin", ""),  # 07:00
        ("2024-01-01T10:15:00+00:00", "Asia/Kathmandu", ""),  # 16:00
        ("2024-01-01T16:15:00+00:00", "Asia/Kathmandu", "quiet_hours"),  # 22:00 at +05:45
        ("2024-01-01T16:14:59+00:00", "Asia/Kathmandu", ""),
    ],
)
def test_quiet_hours_follow_the_clocks_as_they_change(moment: str, zone: str, reason: str) -> None:
    spec, context = {"fields": {"interrupting": True}}, {"timezone": zone}
    compiled = catalogue({"a": spec})
    state = replace(ranking(compiled, ["a"], context=context), now_s=datetime.fromisoformat(moment).timestamp())
    assert Policy(compiled, policy()).judge(state).reasons[0] == reason


SENSITIVE = {
    "name": "health",
    "triggers": ["symptom"],
    "entity_types": ["record"],
    "fields": {"topic": ["grief", 3]},
    "profile": {"minor": [True]},
    "withhold_classes": ["promotion"],
}


@pytest.mark.parametrize(
    ("context", "profile", "reason"),
    [
        ({}, {}, ""),
        ({"trigger": {"type": "symptom"}}, {}, "sensitive"),
        ({"entities": [{"id": "1", "type": "record"}]}, {}, "sensitive"),
        ({"fields": {"topic": "grief"}}, {}, "sensitive"),
        ({"fields": {"topic": ["news", "grief"]}}, {}, "sensitive"),
        ({"fields": {"topic": 3}}, {}, "sensitive"),
        ({"fields": {"topic": {"grief": 1}}}, {}, ""),
        ({}, {"minor": True}, "sensitive"),
        ({}, {"minor": False}, ""),
    ],
)
def test_a_sensitive_context_withholds_its_classes(
    context: dict[str, Any], profile: dict[str, Any], reason: str
) -> None:
    config = policy(sensitive=[SENSITIVE], quiet_hours={"classes": []})
    assert verdict({"safety_class": "promotion"}, known(user(profile)), config, context=context)[0] == reason
    assert verdict({}, known(user(profile)), config, context=context)[0] == ""


@pytest.mark.parametrize(
    ("consents", "reason"),
    [
        (["payments"], ""),
        ({"payments": True}, ""),
        ({"payments": False}, "consent"),
        ({"payments": "yes"}, "consent"),
        (["location"], "consent"),
        ("payments", "consent"),
        ([["payments"], 1, None], "consent"),
    ],
)
def test_consent_is_a_list_of_names_or_a_mapping_to_true(consents: Any, reason: str) -> None:
    assert verdict({"consent": "payments"}, known(user({"consents": consents})))[0] == reason


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        ({"age": 18}, ""),
        ({"age": 18.5}, ""),
        ({"age": 17.9}, "min_age"),
        ({}, "min_age"),
        ({"age": "40"}, "min_age"),
        ({"age": True}, "min_age"),
        ({"age": float("nan")}, "min_age"),
        ({"age": -1}, "min_age"),
    ],
)
def test_an_age_that_is_not_a_number_is_unknown_and_too_young(profile: dict[str, Any], reason: str) -> None:
    assert verdict({"min_age": 18}, known(user(profile)))[0] == reason
    assert verdict({"min_age": 0}, known(user(profile)))[0] == ""


def test_a_user_never_seen_has_been_read() -> None:
    assert verdict({"max_offers_per_day": 1, "cooldown_s": 5}, known(None)) == ("", ())
    assert verdict({"consent": "payments"}, known(None)) == ("consent", ())


@pytest.mark.parametrize(
    ("spec", "config", "reason", "degraded"),
    [
        ({"max_offers_per_day": 1}, {}, "", True),
        ({}, {"offers_per_day": 1}, "", True),
        ({"cooldown_s": 60}, {}, "", True),
        ({"consent": "payments"}, {}, "consent", True),
        ({"min_age": 18}, {}, "min_age", True),
        ({"safety_class": "promotion"}, {"sensitive": [SENSITIVE]}, "sensitive", True),
        ({}, {"sensitive": [SENSITIVE]}, "", False),
        ({}, {}, "", False),
    ],
)
def test_unknown_counters_pass_and_unknown_people_are_protected(
    spec: dict[str, Any], config: dict[str, Any], reason: str, degraded: bool
) -> None:
    reasons = (Degraded.POLICY_UNAVAILABLE,) if degraded else ()
    assert verdict(spec, unread(), policy(quiet_hours={"classes": []}, **config)) == (reason, reasons)


def test_the_version_of_the_rules_is_in_the_answer_and_moves_with_them() -> None:
    compiled = catalogue({"a": {}})
    first, same, other = (
        asyncio.run(Policy(compiled, config).run(ranking(compiled, ["a"]))).versions["policy"]
        for config in (policy(), policy(), policy(offers_per_day=3))
    )
    assert first == same != other


def test_the_shipped_policy_holds_for_the_shipped_defaults() -> None:
    assert load_policy() == PolicyConfig()


def one_by_one(config: PolicyConfig, state: Ranking, row: int) -> bool:
    """The same rules for one candidate, in the plainest way."""
    spec, action = state.candidates.specs[row], state.candidates.actions[row]
    person, now_s, context = Person(state.known), state.now_s, state.request.context
    read, someone = person.was_read, person.user
    age = person.profile.get("age")
    if spec.min_age > 0 and (age is None or age < spec.min_age):
        return False
    given = person.profile.get("consents", [])
    agreed = [name for name, yes in given.items() if yes is True] if isinstance(given, dict) else given
    if spec.consent is not None and spec.consent not in agreed:
        return False
    for rule in config.sensitive:
        concerned = spec.safety_class in rule.withhold_classes or action in rule.withhold_actions
        topic = context.fields.get("topic")
        minor = person.profile.get("minor") in rule.profile.get("minor", []) if read else bool(rule.profile)
        if concerned and (topic in rule.fields.get("topic", []) or minor):
            return False
    clock = datetime.fromtimestamp(now_s, ZoneInfo(context.timezone or "UTC"))
    silenced = spec.fields.get("interrupting") is True or spec.safety_class == "promotion"
    if silenced and (clock.hour >= 22 or clock.hour < 7):
        return False
    if someone is not None:
        cell = someone.counters.cell(action)
        cooldown_s = spec.cooldown_s or config.cooldown_s
        if cell is not None and cell[12] > 0 and now_s - cell[12] < cooldown_s:
            return False
        caps = [cap for cap in (spec.max_offers_per_day, config.offers_per_day) if cap]
        if caps and someone.offers_since(action, now_s - DAY_S) >= min(caps):
            return False
    return True


specs = st.fixed_dictionaries(
    {},
    optional={
        "min_age": st.sampled_from([0, 13, 18]),
        "consent": st.sampled_from(["payments", "location"]),
        "safety_class": st.sampled_from(["none", "promotion", "adult"]),
        "cooldown_s": st.sampled_from([0, 60, 7200]),
        "max_offers_per_day": st.integers(0, 3),
        "fields": st.sampled_from([{}, {"interrupting": True}]),
    },
)
profiles = st.fixed_dictionaries(
    {},
    optional={
        "age": st.sampled_from([12, 17.5, 18, 40]),
        "consents": st.lists(st.sampled_from(["payments", "location"]), max_size=2)
        | st.dictionaries(st.sampled_from(["payments", "location"]), st.sampled_from([True, False, "yes", None])),
        "minor": st.booleans(),
    },
)
pasts = st.lists(
    st.tuples(
        st.sampled_from("abcdef"), st.booleans(), st.sampled_from([1.0, 60.0, 100.0, 9000.0, 86_400.0, 86_401.0])
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(specs, min_size=1, max_size=6),
    profiles,
    pasts,
    st.sampled_from(["read", "new", "unread"]),
    st.sampled_from([None, "Europe/Berlin", "America/Los_Angeles"]),
    st.sampled_from([None, "grief", "news"]),
    st.integers(0, 2),
    st.sampled_from([0.0, 500.0]),
    st.sampled_from([0, 6 * 3600, 8 * 3600, 17 * 3600, 137 * 86_400, 347 * 86_400]),
)
def test_all_candidates_at_once_are_judged_as_one_by_one(
    rows: list[dict[str, Any]],
    profile: dict[str, Any],
    past: list[tuple[str, bool, float]],
    how: str,
    zone: str | None,
    topic: str | None,
    cap: int,
    cooldown_s: float,
    later_s: int,
) -> None:
    person = user(profile)
    now_s = NOON_S + later_s  # other hours of the day, and both sides of a change of clocks
    for action, dismissed, ago_s in past:
        if dismissed:
            person.counters.credit("dismissed", (action,), now_s - ago_s)
        else:
            person.offered(action, now_s - ago_s)
    what = {"read": known(person), "new": known(None), "unread": unread()}[how]
    rule = {
        "name": "r",
        "fields": {"topic": ["grief"]},
        "profile": {"minor": [True]},
        "withhold_classes": ["adult"],
        "withhold_actions": ["b"],
    }
    config = policy(offers_per_day=cap, cooldown_s=cooldown_s, sensitive=[rule])
    compiled = catalogue(dict(zip("abcdef", rows, strict=False)))
    context: dict[str, Any] = {"timezone": zone, "fields": {"topic": topic} if topic else {}}
    state = replace(ranking(compiled, list(compiled.catalogue), what=what, context=context), now_s=now_s)
    kept = Policy(compiled, config).judge(state).keep.tolist()
    assert kept == [one_by_one(config, state, row) for row in range(len(state.candidates))]


@given(st.text(max_size=40))
def test_whatever_is_sent_as_a_time_zone_is_one_or_none(name: str) -> None:
    zone = find_zone(name)
    assert zone is None or zone.key == name
