"""What this session has seen: whether the action was done already, how long ago, and how far along it is."""

from __future__ import annotations

import math
from itertools import repeat

import numpy as np

from features.definitions.family import Columns, age_hours
from features.known import Moment
from features.rows import SessionRow

_EMPTY = SessionRow()
_NEVER = (0.0, math.nan, 0.0)
_OF_ACTION = [0, 1, 2, 7]


class SessionAction:
    """The action in the session's last actions, and the session's length."""

    name = "session"
    columns = (
        "session_done",
        "session_steps_since_done",
        "session_hours_since_done",
        "session_actions",
        "session_events",
        "session_events_since_action",
        "session_hours_since_event",
        "session_repeats_last",
    )

    def read(self, moment: Moment) -> Columns:
        """Values [candidates, columns]."""
        session = moment.known.session or _EMPTY
        columns = np.empty((len(self.columns), len(moment.actions)))
        columns[_OF_ACTION] = _places(moment.actions, session, moment.now_s)
        columns[3] = len(session.actions)
        columns[4] = math.log1p(session.events)
        columns[5] = _events_since_action(session)
        columns[6] = _hours_since_event(moment.now_s, session)
        return columns.T


def _places(actions: tuple[str, ...], session: SessionRow, now_s: float) -> Columns:
    """How often each action was done, how many actions and hours ago (NaN: never), and if last: [4, candidates]."""
    slots: dict[str, int] = {}
    table = [_NEVER]
    for step, done in enumerate(reversed(session.actions)):
        slot = slots.setdefault(done.action, len(table))
        if slot == len(table):
            table.append((0.0, step, done.time_s))
        count, steps, last_s = table[slot]
        table[slot] = (count + 1.0, steps, last_s)
    counts, steps_since, times_s = np.array(table).T
    last = (steps_since == 0.0).astype(np.float64)  # done no step ago: it is the last one
    of_actions = np.array([counts, steps_since, age_hours(now_s, times_s), last])
    found = np.fromiter(map(slots.get, actions, repeat(0)), np.int64, len(actions))
    places: Columns = of_actions.take(found, axis=1)
    return places


def _events_since_action(session: SessionRow) -> float:
    gaps = (gap for gap, token in enumerate(reversed(session.tokens)) if token.word.startswith("+"))
    return float(next(gaps, math.nan))


def _hours_since_event(now_s: float, session: SessionRow) -> float:
    if not session.tokens:
        return math.nan
    return math.log1p(max(now_s - session.tokens[-1].time_s, 0.0) / 3600.0)
