"""A made-up source for an import: people who are offered lists, take what is offered, and do things by themselves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from features.events import (
    ActionEvent,
    Context,
    Event,
    FeedbackEvent,
    InteractionEvent,
    RankedItem,
    RankingEvent,
    encode_event,
    from_seconds,
)

START_S = 1_717_200_000.0
ACTIONS = 50
OFFERED = 3
POOL = 8
EVENTS_PER_USER = 40
STEP_S = 2.0
"""Between two events of all users together."""

_WORDS = tuple(f"word{number}" for number in range(400))


def write_source(path: Path, events: int, seed: int) -> None:
    """Writes canonical JSON lines, one by one: the catalogue, then interactions, rankings and feedback in turn.

    Args:
        events: lines, at least the catalogue's.
    """
    with path.open("wb") as file:
        for event in made_up(events, seed):
            file.write(encode_event(event) + b"\n")


def made_up(events: int, seed: int) -> Iterator[Event]:
    """Exactly so many events; the same seed gives the same ones."""
    draw = random.Random(seed)
    names = [f"action_{number}" for number in range(ACTIONS)]
    for name in names[:events]:
        yield ActionEvent(id=f"made-{name}", time=from_seconds(START_S - 1.0), action=name, fields={"title": name})
    users = max(1, events // EVENTS_PER_USER)
    user, offered = "", names[0]
    for number in range(ACTIONS, events):
        time, step = from_seconds(START_S + STEP_S * number), number % 3
        if step == 0 or not user:
            user = f"user-{draw.randrange(users)}"
        if step == 1 and number + 1 < events:
            pool = draw.sample(names, POOL)
            offered = pool[draw.randrange(OFFERED)]
            yield _ranking(number, user, pool, START_S + STEP_S * number)
        elif step == 2 and number > ACTIONS + 1:
            kind = draw.choice(("accept", "complete", "dismiss"))
            ranking = f"made-{number - 1}"
            yield FeedbackEvent(id=f"made-{number}", time=time, user=user, ranking=ranking, type=kind, action=offered)
        else:
            text = " ".join(draw.choices(_WORDS, k=6))
            yield InteractionEvent(id=f"made-{number}", time=time, user=user, session=user, type="utter", text=text)


def _ranking(number: int, user: str, pool: list[str], time_s: float) -> RankingEvent:
    items = [RankedItem(action=name, position=place) for place, name in enumerate(pool[:OFFERED], 1)]
    return RankingEvent(
        id=f"made-{number}",
        time=from_seconds(time_s),
        user=user,
        session=user,
        context=Context(surface="chat", locale="en-GB"),
        items=items,
        pool=[(name, None, float(len(pool) - place)) for place, name in enumerate(pool)],
        traffic="live",
    )
