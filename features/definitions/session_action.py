"""What this session has seen: whether the action was done already, how long ago, and how far along it is."""

from __future__ import annotations

import math
from itertools import repeat

import numpy as np

from features.definitions.family import Columns, age_hours
from features.known import Moment
from features.rows import SessionRow

_EMPTY = SessionRow()


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
        places = _places(moment.actions, session, moment.now_s)
        columns[0:3] = places[0:3]
        columns[3] = len(session.actions)
        columns[4] = math.log1p(session.events)
        columns[5] = _events_since_action(session)
        columns[6] = _hours_since_event(moment.now_s, session)
        columns[7] = places[3]
        return columns.T


def _places(actions: tuple[str, ...], session: SessionRow, now_s: float) -> Columns:
    """How often each action was done, how many actions and hours ago (NaN: never), and if last: [4, candidates]."""
    slots: dict[str, int] = {}
    counts, steps_since, times_s, last = [0.0], [math.nan], [0.0], [0.0]
    for step, done in enumerate(reversed(session.actions)):
        slot = slots.setdefault(done.action, len(counts))
        if slot == len(counts):
            counts.append(1.0)
            steps_since.append(float(step))
            times_s.append(done.time_s)
            last.append(float(step == 0))
        else:
            counts[slot] += 1.0
    of_actions = np.array([counts, steps_since, times_s, last])
    of_actions[2] = age_hours(now_s, of_actions[2])
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
