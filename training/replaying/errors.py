"""Errors of replays.

TrainingError
└── ReplayError: a log, a version or a service cannot be played against; names it
"""

from __future__ import annotations

from training.errors import TrainingError


class ReplayError(TrainingError):
    """A log, a version or a service cannot be played against."""
