"""Scenes: what a person is in the middle of, as the app sees it and as it truly is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.catalogue import ActionSpec
from features.events import Context, Entity, Trigger, from_seconds
from training.simulated.actions import ACTIONS
from training.simulated.people import Person

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """An action that the context allows, and its target."""

    action: str
    target: str | None


@dataclass(frozen=True)
class Situation:
    """A kind of scene.

    Args:
        trigger: what the app says has happened.
        surfaces: where, each as likely.
        entities: types that are there; `more` are types that may be there too.
        weight: how often it happens.
        openings: how the text begins, by locale.
    """

    trigger: str
    surfaces: tuple[str, ...]
    entities: tuple[str, ...]
    more: tuple[str, ...]
    weight: float
    openings: tuple[str, str]


SITUATIONS = (
    Situation("image_received", ("chat",), ("image",), ("image", "message"), 2.0, ("new photo", "neues foto")),
    Situation("message_received", ("chat",), ("message",), ("link", "image", "message"), 3.0, ("hi", "hallo")),
    Situation("invite_received", ("chat", "home"), ("event",), ("message",), 1.2, ("invitation", "einladung")),
    Situation("document_received", ("chat", "home"), ("document",), ("message", "document"), 1.5, ("file", "datei")),
    Situation("link_shared", ("chat", "share"), ("link",), ("message", "link"), 1.2, ("found this", "gefunden")),
    Situation("call_missed", ("home", "chat"), ("call",), ("message",), 1.0, ("missed call", "anruf verpasst")),
    Situation("app_opened", ("home",), (), ("event", "document", "link"), 2.2, ("", "")),
    Situation("share_opened", ("share",), ("image",), ("document", "link"), 0.8, ("share", "teilen")),
)


@dataclass(frozen=True)
class Scene:
    """One moment at which actions can be offered.

    Args:
        situation: its place in SITUATIONS.
        candidates: every (action, target) that the catalogue allows here, in the catalogue's order.
        actions: [candidates], each one's place in ACTIONS.
        need: the candidate that would help most; what the text hints at. Not known to the app.
        truth: [candidates], probability that the offer is completed once it is seen.
    """

    person: Person
    time_s: float
    session: str
    context: Context
    situation: int
    candidates: tuple[Candidate, ...]
    actions: NDArray[np.int64]
    need: int
    truth: Floats


def allowed(person: Person, spec: ActionSpec, surface: str, time_s: float) -> bool:
    """The simulator's plain eligibility, but for entities: an unknown age counts as too young."""
    return (
        not spec.off
        and (not spec.surfaces or surface in spec.surfaces)
        and (not spec.regions or person.region in spec.regions)
        and (not spec.locales or any(person.locale.startswith(locale) for locale in spec.locales))
        and all(permission in person.permissions for permission in spec.permissions)
        and (person.age or 0) >= spec.min_age
        and (spec.consent is None or spec.consent in person.consents)
        and (spec.min_app_version is None or _number(person.app_version) >= _number(spec.min_app_version))
        and (spec.expires is None or time_s < spec.expires.timestamp())
    )


def candidates_of(
    person: Person, catalogue: Mapping[str, ActionSpec], surface: str, entities: list[Entity], time_s: float
) -> tuple[Candidate, ...]:
    """One candidate per allowed action and entity that it can be about."""
    found = []
    for action, spec in catalogue.items():
        if not allowed(person, spec, surface, time_s):
            continue
        if not spec.entity_types:
            found.append(Candidate(action, None))
        found += [Candidate(action, entity.target) for entity in entities if entity.type in spec.entity_types]
    return tuple(found)


def draw_entities(rng: np.random.Generator, situation: Situation, first: int, time_s: float) -> list[Entity]:
    """The situation's own entities, newest last, after up to two older ones.

    Args:
        first: number from which entity ids count.
    """
    older = [kind for kind in situation.more if rng.random() < 0.3][:2]
    kinds = [*older, *situation.entities]
    ages = [*(float(rng.exponential(3600.0)) for _ in older), *(0.0 for _ in situation.entities)]
    return [
        Entity(id=str(first + place), type=kind, time=from_seconds(time_s - age))
        for place, (kind, age) in enumerate(zip(kinds, ages, strict=True))
    ]


def make_context(
    person: Person, situation: Situation, surface: str, entities: list[Entity], text: str | None, network: str
) -> Context:
    """The context as the app would send it."""
    fields: dict[str, Any] = {"network": network}
    return Context(
        surface=surface,
        locale=person.locale,
        region=person.region,
        timezone=person.timezone.key,
        app_version=person.app_version,
        permissions=list(person.permissions),
        text=text,
        entities=entities,
        trigger=Trigger(type=situation.trigger),
        fields=fields,
    )


def write_text(rng: np.random.Generator, situation: Situation, language: int, need: int, evidence: float) -> str | None:
    """What is said: with probability `evidence` it hints at the need, else at nothing or at another action.

    Args:
        need: place in ACTIONS.
    """
    said = rng.random()
    if said < evidence:
        about = need
    elif said < evidence + (1.0 - evidence) / 2.0:
        about = int(rng.integers(len(ACTIONS)))
    else:
        return situation.openings[language] or None
    phrases = ACTIONS[about].phrases[language]
    return f"{situation.openings[language]} {phrases[int(rng.integers(len(phrases)))]}".strip()


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
