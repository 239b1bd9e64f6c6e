"""Plays a log again in the order of offsets, and stops at each decision with what was known then.

A ranking that says what its features had read (`seen_offset`) is met at just that state, so its vectors are
those that the service used, to the bit.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from features import rows
from features.events import COUNTED_TRAFFIC, Event, InteractionEvent, RankingEvent
from features.known import Known
from features.label_config import OutcomeWindows
from features.log import Problems, read_log
from features.outcomes import WINDOWS
from features.rows import SessionRow, User
from features.state import RowSet, State
from training.identity import identity
from training.replay_checkpoint import Checkpoint

LOOKAHEAD_EVENTS = 4096
"""How far behind the log's end a ranking's features may have been and still be met exactly."""


@dataclass(frozen=True)
class Decision:
    """A moment to rank at: a logged ranking, or something the user did by himself.

    `known` refers to the replay's own state and is valid until the next step.
    """

    offset: int
    event: RankingEvent | InteractionEvent
    known: Known


class Replay:
    """Iterates over the decisions of a log.

    Args:
        until_s: events at or after this time are as if they had not been logged; None takes all.
        own_actions: also stop at interactions with an action.
        progress: called with the number of events taken in, every thousand.
        windows: within which feedback counts.
        follow: told of each event with its offset, as it changes what is known.
        start: a state to go on from, which becomes the replay's own; None starts with the log.
    """

    def __init__(
        self,
        logdir: Path,
        until_s: float | None = None,
        own_actions: bool = False,
        progress: Callable[[int], None] | None = None,
        windows: OutcomeWindows = WINDOWS,
        follow: Callable[[int, Event], object] = lambda *_: None,
        start: Checkpoint | None = None,
    ) -> None:
        self.state = State(windows=windows) if start is None else start.state
        self.rowset = RowSet() if start is None else start.rowset
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._logdir, self._until_s, self._own_actions = logdir, until_s, own_actions
        self._progress = progress or (lambda _: None)
        self.follow = follow
        self._due: list[tuple[int, int, RankingEvent | InteractionEvent]] = []
        self._met: set[bytes] = set() if start is None else start.met
        self._start = 0 if start is None else start.head.offset
        self._stop: tuple[int, Callable[[], object]] | None = None
        self._met_ahead: deque[tuple[int, bytes]] = deque()

    def stop_at(self, offset: int, call: Callable[[], object]) -> None:
        """Calls once when everything before `offset` is in and nothing after, where iteration gets so far."""
        self._stop = (offset, call)

    def met_before(self, offset: int) -> set[bytes]:
        """Identities of decisions below an offset that is not yet in."""
        return self._met - {name for at, name in self._met_ahead if at >= offset}

    def __iter__(self) -> Iterator[Decision]:
        events = read_log(self._logdir, self._start, problems=self.problems)
        ahead: deque[tuple[int, Event]] = deque()
        while True:
            for offset, event in islice(events, LOOKAHEAD_EVENTS - len(ahead)):
                ahead.append((offset, event))
                self._schedule(offset, event)
            if not ahead:
                return
            for _ in range(min(len(ahead), LOOKAHEAD_EVENTS // 2)):
                yield from self._step(*ahead.popleft())

    def _schedule(self, offset: int, event: Event) -> None:
        if not self._counts_in(event):
            return
        if isinstance(event, RankingEvent) and event.traffic in COUNTED_TRAFFIC and self._is_new(offset, event):
            at = offset if event.seen_offset is None else min(event.seen_offset, offset)
            heapq.heappush(self._due, (at, offset, event))
        elif self._own_actions and isinstance(event, InteractionEvent) and event.action and self._is_new(offset, event):
            heapq.heappush(self._due, (offset, offset, event))

    def _is_new(self, offset: int, event: Event) -> bool:
        """Whether no such event came before: one that was logged twice is one decision."""
        name = identity(event)
        new = name not in self._met
        if new:
            self._met.add(name)
            self._met_ahead.append((offset, name))
        return new

    def _step(self, offset: int, event: Event) -> Iterator[Decision]:
        if self._stop is not None and self._stop[0] <= offset:
            call, self._stop = self._stop[1], None
            call()
        while self._met_ahead and self._met_ahead[0][0] < offset:
            self._met_ahead.popleft()
        while self._due and self._due[0][0] <= offset:
            at, own, decision = heapq.heappop(self._due)
            self.counts["met_late"] += at < offset and own != offset
            yield Decision(own, decision, self.known(decision, at))
        if self._counts_in(event):
            self.state.apply(offset, event, self.rowset)
            self.follow(offset, event)
        self.rowset.changed.clear()
        if offset % 1000 == 0:
            self.state.population.seal(offset + 1)
            self._progress(offset)

    def _counts_in(self, event: Event) -> bool:
        return self._until_s is None or event.time_s < self._until_s

    def known(self, event: RankingEvent | InteractionEvent, seen_offset: int | None = None) -> Known:
        """What is known now, as a request by this user and session would read it."""
        user = self.rowset.get(rows.user_key(event.user), event.time_s)
        session = self.rowset.get(rows.session_key(event.user, event.session), event.time_s)
        return Known(
            population=self.state.population.at(),
            user=user if isinstance(user, User) else None,
            session=session if isinstance(session, SessionRow) else None,
            seen_offset=seen_offset,
        )
