"""How each event of the log changes what is known: the same function online, in a rebuild and in replay.

State changes in the order of offsets. `RowSet` hides where rows live: the online applier fills it from the
store for one batch, a replay keeps everything in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from features import outcomes, rows, tokens
from features.catalogue import Catalogue
from features.errors import EventError
from features.events import (
    COUNTED_TRAFFIC,
    ActionEvent,
    Context,
    Event,
    FeedbackEvent,
    ForgetEvent,
    InteractionEvent,
    RankingEvent,
    UserEvent,
)
from features.label_config import OutcomeWindows
from features.population import EVERYTHING, Population
from features.rows import Done, OfferedItem, RankingRow, SaidText, SessionRow, Token, User
from features.situation import credited_keys, situation_keys

Row = User | SessionRow | RankingRow | float


@dataclass
class RowSet:
    """Rows by key, and which of them changed (None: deleted)."""

    rows: dict[str, Row] = field(default_factory=dict)
    changed: dict[str, Row | None] = field(default_factory=dict)

    def get(self, key: str, now_s: float) -> Row | None:
        """The row unless it is older than its life."""
        row = self.rows.get(key)
        return row if row is not None and now_s - updated_s(row) <= rows.life_s(key) else None

    def put(self, key: str, row: Row) -> None:
        """Sets a row."""
        self.rows[key] = self.changed[key] = row

    def delete(self, key: str) -> None:
        """Removes a row."""
        self.rows.pop(key, None)
        self.changed[key] = None


class State:
    """What is known after the events so far.

    Args:
        population: tables over everyone.
        catalogue: changed by `action` events.
        windows: within which feedback counts.
    """

    def __init__(
        self,
        population: Population | None = None,
        catalogue: Catalogue | None = None,
        windows: OutcomeWindows = outcomes.WINDOWS,
    ) -> None:
        self.windows = windows
        self.population = population if population is not None else Population()
        self.catalogue = catalogue if catalogue is not None else Catalogue()
        self.skipped: Counter[str] = Counter()

    def apply(self, offset: int, event: Event, rowset: RowSet) -> bool:
        """Takes one event in; False (and counted in `skipped`) when it changes nothing: a duplicate or an orphan."""
        if isinstance(event, RankingEvent) and event.traffic not in COUNTED_TRAFFIC:
            return self._skip(f"traffic_{event.traffic}")
        seen, time_s = rows.id_key(event), event.time_s
        if rowset.get(seen, time_s) is not None:
            return self._skip("duplicate")
        rowset.put(seen, time_s)
        return _APPLIERS[type(event)](self, offset, event, rowset)

    def _skip(self, reason: str) -> bool:
        self.skipped[reason] += 1
        return False

    def _action(self, _offset: int, event: ActionEvent, _rowset: RowSet) -> bool:
        try:
            self.catalogue.apply(event)
        except EventError as error:
            return self._skip(error.reason)
        return True

    def _user(self, _offset: int, event: UserEvent, rowset: RowSet) -> bool:
        user = _user(rowset, event.user, event.time_s)
        for name, value in event.fields.items():
            user.row.profile.pop(name, None)
            room = len(user.row.profile) < rows.MAX_PROFILE_FIELDS
            if value is not None and room and rows.storable(name, value):
                user.row.profile[name] = value
        return True

    def _interaction(self, offset: int, event: InteractionEvent, rowset: RowSet) -> bool:
        user, session = self._both(rowset, event.user, event.session, event.time_s)
        if event.action is not None:
            keys = situation_keys(_NO_CONTEXT, session)
            self.population.credit(_self_keys(keys), "self", (event.action,), event.time_s)
            _done(user, session, Done(event.time_s, offset, event.action))
            user.counters.credit("self", (event.action,), event.time_s)
        session.events += 1
        word = tokens.interaction_word(event)
        rows.insert_bounded(session.tokens, Token(event.time_s, offset, word), rows.MAX_SESSION_TOKENS)
        if event.text:
            words, pairs = tokens.text_terms(event.text)
            said = SaidText(event.time_s, offset, word, words.tobytes(), pairs.tobytes())
            rows.insert_bounded(session.texts, said, rows.MAX_SESSION_TEXTS)
        return True

    def _ranking(self, _offset: int, event: RankingEvent, rowset: RowSet) -> bool:
        time_s = event.time_s
        user, session = self._both(rowset, event.user, event.session, time_s)
        keys = list(situation_keys(event.context, session).values())
        # Each candidate counts, as each has outcomes of its own; a cap counts how often an action was in a list.
        offered = [action for action, _ in dict.fromkeys((item.action, item.target) for item in event.items)]
        self.population.credit(credited_keys(keys, "offered"), "offered", offered, time_s)
        user.counters.credit("offered", offered, time_s)
        for action in dict.fromkeys(offered):
            user.offered(action, time_s)
        items = [OfferedItem(item.action, item.target) for item in event.items]
        key = rows.ranking_key(event.user, event.id)
        rowset.put(key, RankingRow(time_s, event.user, event.session, keys, items))
        user.row.rankings.append(key)
        for old in user.row.rankings[: -rows.MAX_RANKINGS]:
            rowset.delete(old)
        del user.row.rankings[: -rows.MAX_RANKINGS]
        return True

    def _feedback(self, offset: int, event: FeedbackEvent, rowset: RowSet) -> bool:
        ranking = rowset.get(rows.ranking_key(event.user, event.ranking), event.time_s)
        if not isinstance(ranking, RankingRow) or ranking.user != event.user:
            return self._skip("orphan_feedback")
        if outcomes.is_late(ranking, event, self.windows):
            return self._skip("late_feedback")
        settled = outcomes.settle(ranking, event, self.windows)
        rowset.put(rows.ranking_key(event.user, event.ranking), ranking)
        user, session = self._both(rowset, event.user, ranking.session, event.time_s)
        for outcome in settled:
            keys = credited_keys(ranking.keys, outcome.kind)
            self.population.credit(keys, outcome.kind, (outcome.action,), event.time_s)
            user.counters.credit(outcome.kind, (outcome.action,), event.time_s)
            _follow(user, session, outcome, Done(event.time_s, offset, outcome.action))
        return bool(settled) or self._skip("no_new_outcome")

    def _forget(self, _offset: int, event: ForgetEvent, rowset: RowSet) -> bool:
        user = rowset.get(rows.user_key(event.user), event.time_s)
        if isinstance(user, User):
            for key in [*user.row.sessions, *user.row.rankings]:
                rowset.delete(key)
        rowset.delete(rows.user_key(event.user))
        return True

    @staticmethod
    def _both(rowset: RowSet, user_id: str, session_id: str | None, time_s: float) -> tuple[User, SessionRow]:
        user = _user(rowset, user_id, time_s)
        key = rows.session_key(user_id, session_id)
        session = rowset.get(key, time_s)
        if not isinstance(session, SessionRow):
            session = SessionRow(started_s=time_s)
        session.updated_s = max(session.updated_s, time_s)
        rowset.put(key, session)
        user.row.sessions.pop(key, None)
        user.row.sessions[key] = time_s
        while len(user.row.sessions) > rows.MAX_SESSIONS:
            oldest = next(iter(user.row.sessions))
            del user.row.sessions[oldest]
            rowset.delete(oldest)
        return user, session


def _user(rowset: RowSet, user_id: str, time_s: float) -> User:
    key = rows.user_key(user_id)
    user = rowset.get(key, time_s)
    if not isinstance(user, User):
        user = User()
    user.row.updated_s = max(user.row.updated_s, time_s)
    rowset.put(key, user)
    return user


def _done(user: User, session: SessionRow, done: Done) -> None:
    user.remember(done)
    rows.insert_bounded(session.actions, done, rows.MAX_SESSION_ACTIONS)


def _follow(user: User, session: SessionRow, outcome: outcomes.Outcome, done: Done) -> None:
    """What an outcome adds to the course of the session."""
    if outcome.kind == "accepted":
        _done(user, session, done)
        word = tokens.done_word(outcome.action)
    elif outcome.kind in ("dismissed", "undone"):
        word = tokens.dismissed_word(outcome.action)
    else:
        return
    rows.insert_bounded(session.tokens, Token(done.time_s, done.offset, word), rows.MAX_SESSION_TOKENS)


def _self_keys(keys: dict[str, str]) -> Iterable[str]:
    """An interaction has no context: it says something about everything and about what came before it."""
    return (key for family, key in keys.items() if family == EVERYTHING or family.startswith(("last", "path")))


def updated_s(row: Row) -> float:
    """When a row last changed, as its events tell."""
    if isinstance(row, float):
        return row
    return row.row.updated_s if isinstance(row, User) else row.updated_s


_NO_CONTEXT = Context()

_APPLIERS: dict[type, Callable[[State, int, Any, RowSet], bool]] = {
    ActionEvent: State._action,
    UserEvent: State._user,
    InteractionEvent: State._interaction,
    RankingEvent: State._ranking,
    FeedbackEvent: State._feedback,
    ForgetEvent: State._forget,
}
