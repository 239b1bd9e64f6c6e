"""`configs/policy.yaml` as types: caps, quiet hours, exclusions, sensitive contexts and safety classes."""

from __future__ import annotations

import re
from datetime import time
from hashlib import blake2b
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from features.catalogue import MAX_OFFER_TIMES
from features.events import Name

Names = Annotated[list[Name], Meta(max_length=10_000)]
Age = Annotated[int, Meta(ge=0, le=150)]

_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


class QuietHours(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From `start` to before `end` in the user's time zone what interrupts is not offered; equal: never.

    Args:
        interrupting: silences actions whose `fields.interrupting` is true.
        classes, actions: silences these too.
    """

    start: str = "22:00"
    end: str = "07:00"
    interrupting: bool = True
    classes: Names = msgspec.field(default_factory=lambda: ["promotion"])
    actions: Names = []

    def __post_init__(self) -> None:
        for name, value in (("start", self.start), ("end", self.end)):
            if not _CLOCK.fullmatch(value):
                raise ValueError(f"Expected `{name}` to be a time such as '22:00', got {value!r}")

    def cover(self, local: time) -> bool:
        """Whether a local time of day is quiet; the hours may pass midnight."""
        start, end = time.fromisoformat(self.start), time.fromisoformat(self.end)
        return start <= local < end if start <= end else local >= start or local < end


class SensitiveContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A context in which some classes or actions are withheld. Any one match makes it sensitive.

    Args:
        triggers, entity_types: match the context's.
        fields: match a context field whose value, or an element of it, is one of those listed.
        profile: the same for the user's profile; one that was not read counts as matching.
    """

    name: Name
    triggers: Names = []
    entity_types: Names = []
    fields: dict[str, list[Any]] = {}
    profile: dict[str, list[Any]] = {}
    withhold_classes: Names = []
    withhold_actions: Names = []


class SafetyClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may be offered an action of a class, and where.

    Args:
        min_age: least age in years; an unknown age is too young.
        consent: a consent that must have been given.
        regions: only in these; empty is everywhere. An unknown region is in none.
        restricted: withheld while this process may not know the latest catalogue.
        withhold: never offered.
    """

    min_age: Age = 0
    consent: Name | None = None
    regions: Names = []
    restricted: bool = False
    withhold: bool = False


def _sensitive() -> list[SensitiveContext]:
    return [
        SensitiveContext(
            name="health_or_grief",
            triggers=["symptom_reported"],
            entity_types=["medical_record"],
            fields={"topic": ["health", "grief", "self_harm"]},
            withhold_classes=["promotion", "adult", "finance"],
        ),
        SensitiveContext(name="minor", profile={"minor": [True]}, withhold_classes=["promotion", "adult", "finance"]),
    ]


def _classes() -> dict[str, SafetyClass]:
    return {
        "promotion": SafetyClass(),
        "sensitive": SafetyClass(restricted=True),
        "finance": SafetyClass(min_age=18, restricted=True),
        "adult": SafetyClass(min_age=18, restricted=True),
        "blocked": SafetyClass(withhold=True),
    }


class PolicyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`configs/policy.yaml`.

    Args:
        offers_per_day: a user is offered an action at most this often in 24 hours, where the action does not
            say less; 0 is no cap.
        cooldown_s: for how long an action is not offered after a dismissal, where it does not say itself.
        timezone: for users whose time zone is unknown.
        exclusions: groups of actions of which only the best-ranked is offered.
        safety_classes: by name; an action of a class that is not here is withheld. `none` asks for nothing.
    """

    offers_per_day: Annotated[int, Meta(ge=0, le=MAX_OFFER_TIMES)] = 0
    cooldown_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    timezone: Name = "UTC"
    quiet_hours: QuietHours = QuietHours()
    exclusions: list[Annotated[list[Name], Meta(min_length=2, max_length=1000)]] = []
    sensitive: list[SensitiveContext] = msgspec.field(default_factory=_sensitive)
    safety_classes: dict[Name, SafetyClass] = msgspec.field(default_factory=_classes)

    def __post_init__(self) -> None:
        if "none" in self.safety_classes:
            raise ValueError("Expected no `safety_classes.none`: that class asks for nothing")
        try:
            ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"Expected `timezone` to be an IANA name, got {self.timezone!r}") from error

    @property
    def version(self) -> str:
        """A fingerprint of all rules, for the log."""
        return blake2b(msgspec.json.encode(self, order="deterministic"), digest_size=6).hexdigest()
