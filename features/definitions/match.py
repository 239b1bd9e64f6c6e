"""How well the action's declared conditions and target fit the context."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from features.definitions.declared import VERDICTS, DeclaredMatches, Facts
from features.definitions.family import Columns
from features.events import Context, to_seconds
from features.known import Moment


class ContextMatch:
    """1 where the context is among those the action names, 0 where it is not, NaN where it names none."""

    name = "match"
    columns = (
        "match_surface",
        "match_locale",
        "match_trigger",
        "match_entities",
        "match_needs_target",
        "match_target_hours",
        "match_hour_sin",
        "match_hour_cos",
        "match_weekend",
        "match_has_text",
    )

    def __init__(self) -> None:
        self._matches = DeclaredMatches()

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]; the hour is the user's own."""
        context = moment.context
        columns = np.empty((len(self.columns), len(moment.actions)))
        columns[:VERDICTS] = self._matches.verdicts(moment.specs, _facts(context))
        columns[VERDICTS] = _target_hours(moment)
        situation = (*local_clock(moment.now_s, context.timezone), float(bool(context.text)))
        columns[VERDICTS + 1 :] = np.array(situation)[:, None]
        return columns.T


def local_clock(now_s: float, timezone: str | None) -> tuple[float, float, float]:
    """sin and cos of the hour of day, and whether it is a weekend, in the given zone (UTC when unknown)."""
    local = _local(now_s, zone(timezone))
    angle = 2.0 * math.pi * (local.hour + local.minute / 60.0) / 24.0
    return math.sin(angle), math.cos(angle), float(local.weekday() >= 5)


def _local(now_s: float, where: ZoneInfo) -> datetime:
    try:
        return datetime.fromtimestamp(now_s, where)
    except (OverflowError, ValueError):
        # The last hours of the year 9999 are over already in some zones.
        return datetime.fromtimestamp(now_s, UTC)


@lru_cache(maxsize=512)
def zone(name: str | None) -> ZoneInfo:
    """The zone of an IANA name; UTC when there is none of that name.

    What is no zone is remembered too: to find that out takes a look at every folder of zones.
    """
    try:
        return ZoneInfo(name) if name else ZoneInfo("UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def _facts(context: Context) -> Facts:
    trigger = context.trigger.type if context.trigger else None
    types = tuple(entity.type for entity in context.entities)
    return Facts(context.surface, (context.locale or "").lower(), trigger, types)


def _target_hours(moment: Moment) -> Columns | float:
    """How old each candidate's target is, as log(1 + hours); NaN where no time is known."""
    times = {entity.target: entity.time for entity in moment.context.entities if entity.time is not None}
    if not times:
        return math.nan
    ages = {target: _hours(moment.now_s - to_seconds(time)) for target, time in times.items()}
    return np.array([ages.get(target, math.nan) if target is not None else math.nan for target in moment.targets])


def _hours(gap_s: float) -> float:
    return math.log1p(max(gap_s, 0.0) / 3600.0)
