"""What rules may know about a person: the profile's age, consents and time zone, read with care.

A profile is what the app sent: a value of the wrong type is as good as none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from features.known import Known
from features.rows import User


@dataclass(frozen=True)
class Person:
    """The user of a request.

    Args:
        known: None before it was read, the same as known without personal rows.
    """

    known: Known | None

    @property
    def was_read(self) -> bool:
        """Whether personal rows were read; a user never seen has been read too."""
        return self.known is not None and self.known.seen_offset is not None

    @property
    def user(self) -> User | None:
        """The user's row; None when never seen, or not read."""
        return self.known.user if self.known is not None and self.was_read else None

    @property
    def profile(self) -> Mapping[str, Any]:
        """Profile fields; empty when there are none, or they were not read."""
        return self.user.row.profile if self.user is not None else {}

    @cached_property
    def age(self) -> float | None:
        """Years, from the number `age`; None when unknown."""
        age = self.profile.get("age")
        if isinstance(age, bool) or not isinstance(age, int | float) or not 0 <= age < math.inf:
            return None
        return float(age)

    @cached_property
    def consents(self) -> frozenset[str]:
        """Names of consents given: `consents` is a list of names, or a mapping whose value is true."""
        given = self.profile.get("consents")
        if isinstance(given, Mapping):
            given = [name for name, value in given.items() if value is True]
        return frozenset(name for name in given if isinstance(name, str)) if isinstance(given, list) else frozenset()

    @property
    def timezone(self) -> str | None:
        """The IANA name in the profile, unchecked."""
        zone = self.profile.get("timezone")
        return zone if isinstance(zone, str) else None

    def too_young(self, least_age: float) -> bool:
        """Younger than this, as far as is known: an unknown age is too young for any limit."""
        return least_age > 0 and (self.age is None or self.age < least_age)
