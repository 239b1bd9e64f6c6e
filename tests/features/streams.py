"""Random streams of events as an app would send them: late, repeated, at equal times, naming what is gone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from features.events import (
    ActionEvent,
    Context,
    Entity,
    Event,
    FeedbackEvent,
    ForgetEvent,
    InteractionEvent,
    RankedItem,
    RankingEvent,
    Trigger,
    UserEvent,
    encode_event,
    from_seconds,
)
from features.log import LogWriter

START_S = 1_700_000_000.0
ACTIONS = ("summarize", "translate", "crop", "share", "remind", "archive")


class EventStream:
    """Events of a few users, from a seed."""

    def __init__(self, seed: int, users: int = 5, step_s: float = 400.0) -> None:
        self._random = random.Random(seed)
        self._users = [f"u{number}" for number in range(users)]
        self._step_s = step_s
        self._now_s = START_S
        self._made = 0
        self._sent: list[Event] = []
        self._rankings: list[RankingEvent] = []

    def take(self, count: int) -> list[Event]:
        """The next events, in the order of their offsets."""
        return [self._next() for _ in range(count)]

    def _next(self) -> Event:
        draw = self._random
        # Some share a time with the one before.
        self._now_s += draw.choice((0.0, 0.0, 0.001, 1.0, self._step_s))
        makers = [self._interaction, self._ranking, self._feedback, self._user, self._repeat, self._forget]
        makers.append(self._action)
        event = draw.choices(makers, weights=(30, 25, 35, 3, 4, 0.7, 1))[0]()
        self._sent.append(event)
        return event

    def _time_s(self) -> float:
        late_s = self._random.choice((0.0, 0.0, 0.0, 0.0, 30.0, 3 * 3600.0, 2.5 * 86400.0))
        return round(self._now_s - late_s, 3)

    def _id(self) -> str:
        self._made += 1
        return f"e{self._made}"

    def _session(self) -> str | None:
        return self._random.choice((None, "a", "b", f"s{int(self._now_s // 20000)}"))

    def _interaction(self) -> Event:
        draw = self._random
        return InteractionEvent(
            id=self._id(),
            time=from_seconds(self._time_s()),
            user=draw.choice(self._users),
            session=self._session(),
            type=draw.choice(("opened", "said")),
            action=draw.choice((None, None, *ACTIONS)),
            text=draw.choice((None, "please summarize this long text", "share it with Ann, 17:30")),
            fields={"api": draw.choice(("weather", "maps"))},
        )

    def _ranking(self) -> Event:
        draw = self._random
        offered = draw.sample(ACTIONS, 3)
        event = RankingEvent(
            id=self._id(),
            time=from_seconds(self._time_s()),
            user=draw.choice(self._users),
            session=self._session(),
            context=Context(
                surface=draw.choice(("chat", "mail")),
                locale="en-GB",
                entities=[Entity(id="1", type="image")],
                trigger=Trigger(type=draw.choice(("opened", "said"))),
            ),
            items=[RankedItem(action=action, position=place) for place, action in enumerate(offered, 1)],
            traffic=draw.choices(("live", "explore", "holdout", "shadow", "replay"), weights=(8, 2, 1, 1, 1))[0],
        )
        self._rankings.append(event)
        return event

    def _feedback(self) -> Event:
        draw = self._random
        if not self._rankings or draw.random() < 0.05:
            return self._about("never-made", draw.choice(self._users), draw.choice(ACTIONS))
        ranking = draw.choice(self._rankings[-12:])
        user = ranking.user if draw.random() < 0.95 else draw.choice(self._users)
        return self._about(ranking.id, user, draw.choice([*(item.action for item in ranking.items), "never-offered"]))

    def _about(self, ranking: str, user: str, action: str) -> Event:
        kind = self._random.choice(("seen", "accept", "complete", "dismiss", "undo"))
        time = from_seconds(self._time_s())
        return FeedbackEvent(id=self._id(), time=time, ranking=ranking, user=user, type=kind, action=action)

    def _user(self) -> Event:
        fields = {"age": self._random.choice((None, 12, 34)), "locale": "en-GB", "big": 2**63}
        return UserEvent(
            id=self._id(), time=from_seconds(self._time_s()), user=self._random.choice(self._users), fields=fields
        )

    def _repeat(self) -> Event:
        return self._random.choice(self._sent[-200:]) if self._sent else self._interaction()

    def _forget(self) -> Event:
        return ForgetEvent(id=self._id(), time=from_seconds(self._time_s()), user=self._random.choice(self._users))

    def _action(self) -> Event:
        return ActionEvent(id=self._id(), time=from_seconds(self._time_s()), action=self._random.choice(ACTIONS))


def write_log(logdir: Path, events: Sequence[Event]) -> None:
    """A log of these events, durable and closed."""
    with LogWriter.open(logdir) as writer:
        writer.append([encode_event(event) for event in events])
