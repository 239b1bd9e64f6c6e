"""Errors of the last-item protocol.

LastItemError        (a TrainingError) what was asked cannot be done
├── NothingToJudge   the log has no user with three interactions
├── WrongProtocol    the version was trained by another protocol
└── BrokenVersion    the version's files do not fit its manifest
"""

from __future__ import annotations

from training.errors import TrainingError


class LastItemError(TrainingError):
    """What was asked of the last-item protocol cannot be done."""


class NothingToJudge(LastItemError):
    """The log has no user with three interactions; says what it has."""


class WrongProtocol(LastItemError):
    """A version that was trained by another protocol; names both."""


class BrokenVersion(LastItemError):
    """A version whose files do not fit its manifest; names the file and why."""
