"""Dates on the command line."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import UTC, datetime

FIRST_YEAR = 1970


def date_s(text: str) -> float:
    """Unix seconds of `2020-05-24` or of a full ISO 8601 time; UTC where it names no zone.

    Raises:
        ArgumentTypeError: it is no date; names the value.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a date such as 2020-05-24 or 2020-05-24T09:30:00Z") from None
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if aware.year <= FIRST_YEAR:
        raise ArgumentTypeError(f"{text!r} is not after {FIRST_YEAR}")
    return aware.timestamp()
