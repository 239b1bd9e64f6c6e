"""Errors of off-policy evaluation.

TrainingError
└── OffPolicyError: a log, a target or an option cannot be used; names it
"""

from __future__ import annotations

from training.errors import TrainingError


class OffPolicyError(TrainingError):
    """A log, a target or an option cannot be used."""
