"""What this session has seen: whether the action was done already, how long ago, and how far along it is."""

from __future__ import annotations

import numpy as np

from features.definitions.family import Columns, age_hours, constant
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
        rows = len(moment.actions)
        count, steps, last_s = _places(moment.actions, session)
        last = session.actions[-1].action if session.actions else None
        return np.column_stack(
            [
                count,
                steps,
                age_hours(moment.now_s, last_s),
                constant(len(session.actions), rows),
                constant(np.log1p(session.events), rows),
                constant(_events_since_action(session), rows),
                constant(_hours_since_event(moment.now_s, session), rows),
                np.fromiter((action == last for action in moment.actions), np.float64, rows),
            ]
        )


def _places(actions: tuple[str, ...], session: SessionRow) -> tuple[Columns, Columns, Columns]:
    """How often each action was done, how many actions ago (NaN: never) and when (0: never); each [candidates]."""
    places: dict[str, tuple[int, int, float]] = {}
    for step, done in enumerate(reversed(session.actions)):
        count, steps, last_s = places.get(done.action, (0, step, done.time_s))
        places[done.action] = (count + 1, steps, last_s)
    never = (0, np.nan, 0.0)
    table = np.array([places.get(action, never) for action in actions], np.float64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def _events_since_action(session: SessionRow) -> float:
    words = [token.word for token in reversed(session.tokens)]
    return next((float(gap) for gap, word in enumerate(words) if word.startswith("+")), np.nan)


def _hours_since_event(now_s: float, session: SessionRow) -> float:
    if not session.tokens:
        return np.nan
    return float(np.log1p(max(now_s - session.tokens[-1].time_s, 0.0) / 3600.0))
