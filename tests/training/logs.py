"""Small logs by hand for the offline jobs, and a trained version that lies in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from features.events import (
    ActionEvent,
    Context,
    Event,
    FeedbackEvent,
    ForgetEvent,
    InteractionEvent,
    RankedItem,
    RankingEvent,
    encode_event,
    from_seconds,
)
from features.log import LogWriter

START_S = 1_700_000_000.0


def utc(*parts: int) -> datetime:
    """A time in UTC."""
    year, month, day, *rest = parts
    hour, minute = (*rest, 0, 0)[:2]
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


def write_log(logdir: Path, events: Sequence[Event]) -> Path:
    """A log of these events."""
    with LogWriter.open(logdir) as writer:
        writer.append([encode_event(event) for event in events])
    return logdir


@dataclass(frozen=True)
class TrainedFiles:
    """What a registry would give."""

    files: Mapping[str, bytes]

    def read(self, version: str, name: str) -> bytes:
        """The file's bytes."""
        return self.files[name]


def catalogue(actions: str, at_s: float = -1.0) -> list[Event]:
    """`action` events, one a letter (or word, where there are spaces)."""
    names = actions.split() if " " in actions else list(actions)
    return [ActionEvent(id=f"action {name}", time=at(at_s), action=name) for name in names]


def at(seconds: float) -> datetime:
    """Seconds after START_S."""
    return from_seconds(START_S + seconds)


def ranked(id: str, at_s: float, offered: str = "ab", user: str = "u", **more: Any) -> RankingEvent:
    """A ranking; `context` may be JSON."""
    context = msgspec.convert(more.pop("context", {}), Context)
    items = [RankedItem(action=action, position=place) for place, action in enumerate(offered, 1)]
    return RankingEvent(id=id, time=at(at_s), user=user, items=items, context=context, **more)


def answered(
    ranking: str, kind: str, at_s: float, action: str = "a", user: str = "u", id: str | None = None
) -> FeedbackEvent:
    """Feedback whose id follows from what it says, unless given."""
    name = id or f"{user} {ranking} {kind} {action} {at_s}"
    return FeedbackEvent(id=name, time=at(at_s), ranking=ranking, user=user, type=kind, action=action)


def did(action: str | None, at_s: float, user: str = "u", **more: Any) -> InteractionEvent:
    """Something the user did by himself."""
    fields: dict[str, Any] = {"id": f"{user} did {action} at {at_s}", "type": "did", **more}
    return InteractionEvent(time=at(at_s), user=user, action=action, **fields)


def forget(at_s: float, user: str = "u") -> ForgetEvent:
    """The user's wish."""
    return ForgetEvent(id=f"forget {user} {at_s}", time=at(at_s), user=user)
