"""Errors of the ship gates.

TrainingError
└── GateError: a version, a log or an option cannot be gated; names it
"""

from __future__ import annotations

from training.errors import TrainingError


class GateError(TrainingError):
    """A version, a log or an option cannot be gated."""
