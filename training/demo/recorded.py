"""An app that plays the held-back part of a log again, in the present.

Interactions are posted as they were; where a ranking was logged the service is asked for one. What the
person picked then is accepted if it is offered now, and otherwise done by himself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from features.events import (
    COUNTED_TRAFFIC,
    Context,
    Event,
    FeedbackEvent,
    InteractionEvent,
    RankingEvent,
    UserEvent,
    from_seconds,
)
from features.log import read_log
from ranker.answers import RankAnswer
from training.demo.apps import Outcome, Turn
from training.labels import Pair

OWN_CHOICE = "own_choice"


@dataclass(frozen=True)
class _Asked:
    """The turn that waits for its answer: the logged ranking, or what the user did by himself."""

    event: RankingEvent | InteractionEvent
    wanted: Pair | None


@dataclass
class RecordedApp:
    """The held-back part of a log, in front of a running service.

    Args:
        since_s: events from then on are played.
        clock: Unix seconds.
        run: prefix of all ids.
    """

    log: Path
    since_s: float
    clock: Callable[[], float]
    run: str
    k: int = 5
    _answers: dict[str, tuple[str, frozenset[Pair]]] = field(default_factory=dict)
    _asked: _Asked | None = None

    def __post_init__(self) -> None:
        self._ids = count(1)

    def turns(self) -> Iterator[Turn]:
        """A turn per logged list; without any, one per action that a user did by himself."""
        said: dict[str | None, str] = {}
        events = list(self._held_back(said))
        picks = _picks(events)
        has_lists = any(_is_list(event) for event in events)
        waiting: list[Event] = []
        for event in events:
            asks = _is_list(event) or (not has_lists and isinstance(event, InteractionEvent) and event.action)
            if isinstance(event, RankingEvent | InteractionEvent) and asks:
                own = (event.action, event.target) if isinstance(event, InteractionEvent) and event.action else None
                self._asked = _Asked(event, picks.get(event.id, own))
                yield Turn(self._body(event), tuple(waiting), said.get(event.session))
                waiting.clear()
                continue
            if isinstance(event, InteractionEvent) and event.text:
                said[event.session] = event.text
            waiting += self._again(event)

    def _held_back(self, said: dict[str | None, str]) -> Iterator[Event]:
        """The events to play; takes note of what was last said in each session before."""
        for _, event in read_log(self.log):
            if event.time_s >= self.since_s:
                yield event
            elif isinstance(event, InteractionEvent) and event.text:
                said[event.session] = event.text

    def respond(self, answer: RankAnswer) -> Outcome:
        """The pick of the log, if it is offered."""
        assert self._asked is not None
        event, wanted = self._asked.event, self._asked.wanted
        offered = [(item.action, item.target) for item in answer.items]
        self._answers[event.id] = (answer.id, frozenset(offered))
        after = [self._feedback("seen", event.user, answer.id, pair) for pair in offered]
        if wanted is None:
            return Outcome(after, None, None, "seen")
        if wanted in offered:
            return Outcome(
                [*after, self._feedback("accept", event.user, answer.id, wanted)], wanted, wanted, "accepted"
            )
        return Outcome([*after, self._own_choice(event, wanted)], None, wanted, "chosen by himself")

    def _body(self, event: RankingEvent | InteractionEvent) -> dict[str, Any]:
        context = event.context if isinstance(event, RankingEvent) else Context()
        later = from_seconds(self.clock()) - event.time
        entities = [
            entity if entity.time is None else msgspec.structs.replace(entity, time=entity.time + later)
            for entity in context.entities
        ]
        known = {name: value for name, value in context.fields.items() if not name.startswith("_")}
        now = msgspec.structs.replace(context, time=None, entities=entities, fields=known)
        body = {"user": event.user, "session": event.session, "context": msgspec.to_builtins(now), "k": self.k}
        return {"id": self._id(), **body}

    def _again(self, event: Event) -> list[Event]:
        """The event in the present, with a new id; nothing for what the app does not post, or did already."""
        if isinstance(event, InteractionEvent | UserEvent):
            return [msgspec.structs.replace(event, id=self._id(), time=self._now())]
        if isinstance(event, FeedbackEvent) and event.type not in ("seen", "accept"):
            ranking, offered = self._answers.get(event.ranking, ("", frozenset()))
            pair = event.action, event.target
            return [self._feedback(event.type, event.user, ranking, pair, event.value)] if pair in offered else []
        return []

    def _feedback(self, kind: str, user: str, ranking: str, pair: Pair, value: float | None = None) -> FeedbackEvent:
        action, target = pair
        return FeedbackEvent(
            id=self._id(), time=self._now(), ranking=ranking, user=user, type=kind, action=action, target=target,
            value=value,
        )  # fmt: skip

    def _own_choice(self, event: RankingEvent | InteractionEvent, wanted: Pair) -> InteractionEvent:
        action, target = wanted
        kind = event.type if isinstance(event, InteractionEvent) else OWN_CHOICE
        return InteractionEvent(
            id=self._id(), time=self._now(), user=event.user, session=event.session, type=kind, action=action,
            target=target,
        )  # fmt: skip

    def _now(self) -> Any:
        return from_seconds(self.clock())

    def _id(self) -> str:
        return f"{self.run}-{next(self._ids)}"


def _is_list(event: Event) -> bool:
    return isinstance(event, RankingEvent) and bool(event.items) and event.traffic in COUNTED_TRAFFIC


def _picks(events: Sequence[Event]) -> dict[str, Pair]:
    """The first accept of each ranking."""
    picks: dict[str, Pair] = {}
    for event in events:
        if isinstance(event, FeedbackEvent) and event.type == "accept":
            picks.setdefault(event.ranking, (event.action, event.target))
    return picks
