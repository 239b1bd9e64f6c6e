"""How well the action's declared conditions and target fit the context."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from features.catalogue import ActionSpec
from features.definitions.family import Columns, constant
from features.events import Context, Entity, to_seconds
from features.known import Moment

_NO_SPEC = ActionSpec()
_NAMES_NOTHING = (math.nan, math.nan, math.nan, math.nan, 0.0)


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

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]; the hour is the user's own."""
        context = moment.context
        types = [entity.type for entity in context.entities]
        trigger = context.trigger.type if context.trigger else None
        declared = [_declared(spec or _NO_SPEC, context, trigger, types) for spec in moment.specs]
        entities = {entity.target: entity for entity in context.entities}
        ages = [
            math.nan if target is None else _target_hours(entities.get(target), moment.now_s)
            for target in moment.targets
        ]
        rows = len(moment.actions)
        situation = (*local_clock(moment.now_s, context.timezone), float(bool(context.text)))
        same = [constant(value, rows) for value in situation]
        return np.column_stack([np.array(declared, np.float64).reshape(rows, 5), np.array(ages), *same])


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


def zone(name: str | None) -> ZoneInfo:
    """The zone of an IANA name; UTC when there is none of that name."""
    try:
        return ZoneInfo(name) if name else ZoneInfo("UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def _declared(spec: ActionSpec, context: Context, trigger: str | None, types: list[str]) -> tuple[float, ...]:
    if not (spec.surfaces or spec.locales or spec.triggers or spec.entity_types):
        return _NAMES_NOTHING
    locale = (context.locale or "").lower()
    return (
        _among(context.surface, spec.surfaces),
        float(any(locale == name.lower() or locale.startswith(name.lower() + "-") for name in spec.locales))
        if spec.locales
        else math.nan,
        _among(trigger, spec.triggers),
        float(sum(kind in spec.entity_types for kind in types)) if spec.entity_types else math.nan,
        float(bool(spec.entity_types)),
    )


def _among(value: str | None, names: list[str]) -> float:
    return float(value in names) if names else math.nan


def _target_hours(entity: Entity | None, now_s: float) -> float:
    if entity is None or entity.time is None:
        return math.nan
    return math.log1p(max(now_s - to_seconds(entity.time), 0.0) / 3600.0)
