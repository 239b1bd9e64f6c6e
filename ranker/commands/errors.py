"""Errors of the command line itself.

CommandError: what was asked cannot be done; its text is the one line that the user sees
"""

from __future__ import annotations


class CommandError(Exception):
    """What was asked cannot be done."""
