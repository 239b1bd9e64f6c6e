"""Rules of policy: how often, how soon again, when, where and with whose leave; all candidates at once.

When personal rows could not be read, caps and cooldowns let an action pass (an offer too many is a
nuisance), and whatever protects somebody (consent, age, sensitive contexts) withholds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from functools import cached_property, lru_cache
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import numpy as np

from features.cells import LAST_DISMISSED
from ranker.compiled import CompiledCatalogue, Rows
from ranker.judges import Mask
from ranker.person import Person
from ranker.policy_config import PolicyConfig, QuietHours, SensitiveContext
from ranker.traits import CAP, CLASS, CONSENT, COOLDOWN, INTERRUPTS, MIN_AGE
from ranker.types import Ranking

DAY_S = 86_400.0


@dataclass(frozen=True)
class Case:
    """What a rule looks at: one request, its person, and its candidates as rows of the catalogue."""

    ranking: Ranking
    catalogue: CompiledCatalogue

    @cached_property
    def rows(self) -> Rows:
        """The catalogue's row per candidate."""
        return self.catalogue.rows(self.ranking.candidates.actions)

    @cached_property
    def traits(self) -> int:
        """The bits of ranker/traits.py that any candidate has."""
        return self.catalogue.traits(self.rows)

    @cached_property
    def person(self) -> Person:
        """The user as far as known."""
        return Person(self.ranking.known)

    def column(self, name: str) -> Any:
        """Values [candidates] of a column of the catalogue."""
        return self.catalogue.column(name, self.rows)

    def none(self) -> Mask:
        """No candidate."""
        return np.zeros(len(self.rows), np.bool_)

    def those_of(self, classes: Iterable[str], actions: Iterable[str]) -> Mask:
        """Candidates of any of the safety classes, or that are any of the actions."""
        found = self.none()
        for name in classes:
            found |= self.catalogue.has("safety_class", self.rows, name)
        for row in self.catalogue.rows(list(actions)).tolist():
            found |= (self.rows == row) & self.column("live")
        return found


class Rule(Protocol):
    """One rule of policy."""

    @property
    def reason(self) -> str:
        """What a drop says."""
        ...

    def concerns(self, traits: int) -> bool:
        """Whether it can refuse any candidate among those that have these traits; when in doubt it does."""
        ...

    def refuses(self, case: Case) -> Mask:
        """Which candidates may not be offered."""
        ...

    def wants_person(self, case: Case) -> bool:
        """Whether it has to know the person to judge these candidates."""
        ...


@dataclass(frozen=True)
class Cap:
    """At most so many offers of an action to a user in 24 hours. Unknown counters pass."""

    offers_per_day: int
    reason: str = "cap"

    def concerns(self, traits: int) -> bool:
        """Those that have a cap, of their own or by default."""
        return bool(self.offers_per_day or traits & CAP)

    def refuses(self, case: Case) -> Mask:
        """Those offered to the limit already."""
        limits, user = self._limits(case), case.person.user
        refused = case.none()
        if user is None or not np.count_nonzero(limits):
            return refused
        since_s = case.ranking.now_s - DAY_S
        for row, action in enumerate(case.ranking.candidates.actions):
            if action in user.row.offers and limits[row]:
                refused[row] = user.offers_since(action, since_s) >= limits[row]
        return refused

    def wants_person(self, case: Case) -> bool:
        """When anything is capped."""
        return bool((self._limits(case) > 0).any())

    def _limits(self, case: Case) -> Any:
        """The smaller of the default and the action's own, where there is one; 0 is none."""
        own = case.column("offers_per_day")
        if not self.offers_per_day:
            return own
        return np.where(own > 0, np.minimum(own, self.offers_per_day), self.offers_per_day)


@dataclass(frozen=True)
class Cooldown:
    """Not for a while after the user dismissed it. Unknown counters pass."""

    cooldown_s: float
    reason: str = "cooldown"

    def concerns(self, traits: int) -> bool:
        """Those that cool down, by themselves or by default."""
        return bool(self.cooldown_s or traits & COOLDOWN)

    def refuses(self, case: Case) -> Mask:
        """Those dismissed less than their cooldown ago."""
        user = case.person.user
        cooldowns = self._cooldowns(case)
        if user is None or not len(user.counters) or not np.count_nonzero(cooldowns):
            return case.none()
        dismissed_s = user.counters.gather(case.ranking.candidates.actions)[:, LAST_DISMISSED]
        cooling = case.ranking.now_s - dismissed_s < cooldowns
        return np.asarray((dismissed_s > 0.0) & cooling, np.bool_)

    def wants_person(self, case: Case) -> bool:
        """When anything cools down."""
        return bool((self._cooldowns(case) > 0.0).any())

    def _cooldowns(self, case: Case) -> Any:
        own = case.column("cooldown_s")
        return np.where(own > 0.0, own, self.cooldown_s)


@dataclass(frozen=True)
class Quiet:
    """What interrupts is not offered in quiet hours, by the user's clock."""

    hours: QuietHours
    timezone: str
    reason: str = "quiet_hours"

    def concerns(self, traits: int) -> bool:
        """Those that interrupt, or are of a class; a named action may be any."""
        return bool(self.hours.actions or traits & (INTERRUPTS | CLASS))

    def refuses(self, case: Case) -> Mask:
        """Those that the hours silence, when it is quiet where the user is."""
        if self.hours.start == self.hours.end or not self.hours.cover(self._local(case)):
            return case.none()
        silenced = case.those_of(self.hours.classes, self.hours.actions)
        return silenced | case.column("interrupting") if self.hours.interrupting else silenced

    def wants_person(self, _case: Case) -> bool:
        """Never: there is always some time zone."""
        return False

    def _local(self, case: Case) -> time:
        """The time of day in the context's zone, or the profile's, or the default: the first that exists."""
        names = (case.ranking.request.context.timezone, case.person.timezone, self.timezone)
        zone = next(zone for zone in map(find_zone, names) if zone is not None)
        return datetime.fromtimestamp(case.ranking.now_s, zone).time()


@dataclass(frozen=True)
class Sensitive:
    """In some contexts some classes are withheld."""

    contexts: Sequence[SensitiveContext]
    reason: str = "sensitive"

    def concerns(self, traits: int) -> bool:
        """Those of a class; a named action may be any."""
        return bool(traits & CLASS or self._names_actions)

    def refuses(self, case: Case) -> Mask:
        """Those withheld by any context that matches."""
        refused = case.none()
        for rule in self.contexts:
            if self._matches(rule, case):
                refused |= case.those_of(rule.withhold_classes, rule.withhold_actions)
        return refused

    def wants_person(self, case: Case) -> bool:
        """When a profile decides about any of them."""
        return any(
            rule.profile and case.those_of(rule.withhold_classes, rule.withhold_actions).any() for rule in self.contexts
        )

    @cached_property
    def _names_actions(self) -> bool:
        return any(rule.withhold_actions for rule in self.contexts)

    @staticmethod
    def _matches(rule: SensitiveContext, case: Case) -> bool:
        context = case.ranking.request.context
        if rule.profile and not case.person.was_read:
            return True
        return (
            (context.trigger is not None and context.trigger.type in rule.triggers)
            or any(entity.type in rule.entity_types for entity in context.entities)
            or _any_listed(rule.fields, context.fields)
            or _any_listed(rule.profile, case.person.profile)
        )


@dataclass(frozen=True)
class Consent:
    """Only with the consent that the action needs. An unknown user has given none."""

    reason: str = "consent"

    def concerns(self, traits: int) -> bool:
        """Those that need a consent."""
        return bool(traits & CONSENT)

    def refuses(self, case: Case) -> Mask:
        """Those whose consent was not given."""
        return ~case.catalogue.holds("consent", case.rows, case.person.consents)

    def wants_person(self, case: Case) -> bool:
        """When anything needs a consent."""
        return bool(case.column("consent").any())


@dataclass(frozen=True)
class LeastAge:
    """Only for those old enough. An unknown age is too young."""

    reason: str = "min_age"

    def concerns(self, traits: int) -> bool:
        """Those with an age limit."""
        return bool(traits & MIN_AGE)

    def refuses(self, case: Case) -> Mask:
        """Those for people older than this user is known to be."""
        limits = case.column("min_age")
        age = case.person.age
        return np.asarray(limits > (0 if age is None else age), np.bool_)

    def wants_person(self, case: Case) -> bool:
        """When anything has an age limit."""
        return bool(case.column("min_age").any())


def rules(config: PolicyConfig) -> tuple[Rule, ...]:
    """The rules in the order in which their reasons win."""
    return (
        LeastAge(),
        Consent(),
        Sensitive(config.sensitive),
        Quiet(config.quiet_hours, config.timezone),
        Cooldown(config.cooldown_s),
        Cap(config.offers_per_day),
    )


@lru_cache(maxsize=1024)
def find_zone(name: str | None) -> ZoneInfo | None:
    """The time zone of an IANA name, None for what is not one."""
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, ValueError, OSError):
        return None


def _any_listed(wanted: Mapping[str, Sequence[Any]], fields: Mapping[str, Any]) -> bool:
    """Whether a field's value, or an element of it, is among those wanted."""
    for name, values in wanted.items():
        value = fields.get(name)
        if any(part in values for part in (value if isinstance(value, list) else [value]) if part is not None):
            return True
    return False
