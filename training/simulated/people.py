"""Simulated people: who they are, what they may, and the habits behind what they need."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from training.simulated.actions import ACTIONS, CONSENTS, LOCALES, PERMISSIONS

Floats = NDArray[np.float64]

_HOMES = (
    ("en-GB", "GB", "Europe/London", 0.4),
    ("de-DE", "DE", "Europe/Berlin", 0.4),
    ("en-GB", "US", "America/New_York", 0.2),
)
_VERSIONS = ("3.1.0", "3.2.4", "3.10.0")
FAVOURITES = 3


@dataclass(frozen=True)
class Person:
    """A user and his latent habits.

    Args:
        age: in years; None when the app does not know it.
        sessions_per_day: mean.
        busiest_hour: local hour around which his sessions lie.
        preference: [actions], added to the log weight of needing each; a few favourites stand out.
        next_action: [actions], the action that he likes to do after each, or -1.
    """

    id: str
    locale: str
    region: str
    timezone: ZoneInfo
    age: int | None
    consents: tuple[str, ...]
    permissions: tuple[str, ...]
    app_version: str
    sessions_per_day: float
    busiest_hour: float
    preference: Floats
    next_action: NDArray[np.int64]

    @property
    def language(self) -> int:
        """Place of his locale in LOCALES."""
        return LOCALES.index(self.locale)


def draw_people(rng: np.random.Generator, count: int) -> list[Person]:
    """People with independent habits."""
    return [_draw(rng, number) for number in range(count)]


def _draw(rng: np.random.Generator, number: int) -> Person:
    locale, region, zone, _ = _HOMES[int(np.searchsorted(np.cumsum([home[3] for home in _HOMES]), rng.random()))]
    return Person(
        id=f"user-{number:04d}",
        locale=locale,
        region=region,
        timezone=ZoneInfo(zone),
        age=None if rng.random() < 0.1 else int(rng.integers(13, 75)),
        consents=tuple(name for name in CONSENTS if rng.random() < 0.75),
        permissions=tuple(name for name in PERMISSIONS if rng.random() < 0.85),
        app_version=_VERSIONS[int(rng.integers(len(_VERSIONS)))],
        sessions_per_day=float(rng.gamma(2.0, 0.5)),
        busiest_hour=float(rng.normal(14.0, 4.0) % 24.0),
        preference=_preference(rng),
        next_action=_next_actions(rng),
    )


def _preference(rng: np.random.Generator) -> Floats:
    preference = rng.normal(0.0, 0.5, len(ACTIONS))
    preference[rng.permutation(len(ACTIONS))[:FAVOURITES]] += 1.8
    return preference


def _next_actions(rng: np.random.Generator) -> NDArray[np.int64]:
    """Half of the actions lead this person on to another one."""
    following = rng.integers(0, len(ACTIONS), len(ACTIONS))
    return np.where(rng.random(len(ACTIONS)) < 0.5, following, -1)
