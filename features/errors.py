"""Errors of the features package.

FeatureError
├── EventError          an event that cannot be used; names the field and the value
├── LogError            the log cannot be read or written
│   ├── LogUnavailable  nothing can be appended now (full disk, read-only, closed)
│   └── LogLocked       another process writes this partition
├── StoreError          the feature store did not answer as it should
│   ├── StoreTimeout    not within its time-out
│   └── StoreUnavailable  no connection, or the circuit is open
├── StoreLost           the store no longer holds what its writer put there
└── UnreadableRow       bytes in the store are no row
"""

from __future__ import annotations


class FeatureError(Exception):
    """Root of the errors that `features` raises on purpose."""


class EventError(FeatureError):
    """An event that cannot be used.

    Args:
        reason: stable word for counting, such as `invalid` or `too_old`.
        detail: a sentence that names the field and the value.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class LogError(FeatureError):
    """The log cannot be read or written."""


class LogUnavailable(LogError):
    """Nothing can be appended now: the disk is full, read-only, or the log is closed."""


class LogLocked(LogError):
    """Another process is the writer of this partition."""


class StoreError(FeatureError):
    """The feature store did not answer as it should."""


class StoreTimeout(StoreError):
    """The store did not answer within its time-out."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, or its circuit is open."""


class StoreLost(FeatureError):
    """The store no longer holds what its writer put there: it came back empty, or went back in time."""


class UnreadableRow(FeatureError):
    """A store holds bytes under a key that are no row."""
