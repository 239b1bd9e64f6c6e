"""Errors of the offline jobs.

TrainingError: a job cannot do what it was asked; one line that says what is missing
"""

from __future__ import annotations


class TrainingError(Exception):
    """A job cannot do what it was asked."""
