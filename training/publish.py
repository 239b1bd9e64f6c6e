"""A trained light ranker becomes a version of the registry."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from features.events import format_time
from ranker.config import TrainConfig
from ranker.light_model import HINT, trees_file
from ranker.release.registry import DataSpan, Manifest, Registry
from training.light import TrainedLight


def publish(registry: Registry, trained: TrainedLight, config: TrainConfig) -> Manifest:
    """The trained files as a new version that says what it learned from, and how; it is not yet active.

    Raises:
        RegistryError: the registry cannot be written.
    """
    data = trained.data
    span = DataSpan(since=data["since"], until=_end(data), events=data["events"], rankings=data["rankings"])
    rest = {name: value for name, value in data.items() if name not in DataSpan.__struct_fields__}
    return registry.publish(
        trained.files,
        schema=trained.schema,
        metrics=trained.metrics,
        data=span,
        extra={**trained.extra, **rest, "hint": has_hint(trained), "config": msgspec.to_builtins(config)},
    )


def _end(data: dict[str, Any]) -> str:
    """Exclusive, as a date that is given is: what was learned from last does not come at or after it."""
    if data["until"] != data["last"]:
        return str(data["until"])
    return format_time(datetime.fromisoformat(data["last"]) + timedelta(milliseconds=1))


def has_hint(trained: TrainedLight) -> bool:
    """Whether there is a set that learned from what users typed."""
    return trees_file(HINT) in trained.files
