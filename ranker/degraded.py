"""Why an answer is less than it could be: the one list of reasons (README and tests refer to it)."""

from __future__ import annotations

from enum import StrEnum


class Degraded(StrEnum):
    """A reason in an answer's `degraded`."""

    FEATURES_TIMEOUT = "features:timeout"
    FEATURES_UNAVAILABLE = "features:unavailable"
    FEATURES_STALE = "features:stale"
    LIGHT_MISSING = "light:missing"
    LIGHT_SCHEMA = "light:schema"
    SECOND_OVERLOADED = "second:overloaded"
    SECOND_LOADING = "second:loading"
    SECOND_ERROR = "second:error"
    SECOND_BUDGET = "second:budget"
    POLICY_UNAVAILABLE = "policy:unavailable"
    SAFETY_WITHHELD = "safety:withheld"
    ID_UNVERIFIED = "id:unverified"
    EMPTY = "empty"
    LOG_UNAVAILABLE = "log:unavailable"
