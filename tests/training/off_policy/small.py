"""Slates and logs by hand for the tests of off-policy evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from features.events import Event, RankedItem, RankingEvent
from tests.training.logs import at
from training.off_policy.slates import Floats, Slates

Table = Sequence[Sequence[float]]


def slates(logged: Table, target: Table, rewards: Table, users: Sequence[int] | None = None, **more: Table) -> Slates:
    """One row per slate; the reward is called `r`, and each row is a user of its own unless told otherwise."""
    shown = np.ones(np.shape(logged), np.bool_)
    codes = np.arange(len(logged)) if users is None else np.array(users)
    alone = {name: _floats(table) for name, table in more.items()}
    return Slates(codes, _floats(logged), _floats(target), shown, {"r": _floats(rewards)}, **alone)


def _floats(table: Table) -> Floats:
    return np.array(table, np.float64)


def drawn(id: str, at_s: float, shown: str, propensities: Sequence[float | None], **more: Any) -> RankingEvent:
    """A ranking out of the pool `abcd`, one letter an action; scores are 4, 3, 2, 1 unless given."""
    pool = more.pop("pool", [(action, None, 4.0 - place) for place, action in enumerate("abcd")])
    first = more.pop("first", 1)
    items = [
        RankedItem(action=action, position=place, propensity=propensity)
        for place, (action, propensity) in enumerate(zip(shown, propensities, strict=True), first)
    ]
    named = {"user": f"u-{id}", "traffic": "explore", **more}
    return RankingEvent(id=id, time=at(at_s), items=items, pool=pool, **named)


def accepted(event: RankingEvent, action: str) -> Event:
    """The feedback that an action was accepted a minute later."""
    from tests.training.logs import START_S, answered

    return answered(event.id, "accept", event.time_s - START_S + 60.0, action, event.user)
