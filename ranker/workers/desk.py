"""The keeper's side of the feed: what happens is told to every follower, in one order, and what they say is done.

It listens to the owners of state in the keeper (applier, catalogue, own writes) and changes none of them, but
for the rankings that followers have for the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import islice

import msgspec

from features.applier import Applier
from features.catalogue_log import LiveCatalogue
from features.errors import LogError
from features.log import LogWriter
from features.population import CellName, Population
from ranker.catalogue_desk import CatalogueChange
from ranker.clock import Clock
from ranker.own_writes import OwnWrites
from ranker.workers.barrier import Barrier
from ranker.workers.counts import Counts, added, unpacked
from ranker.workers.lease import BEATS_PER_LIMIT, Member
from ranker.workers.line import Line
from ranker.workers.messages import (
    Acked,
    Append,
    Cells,
    Changed,
    Committed,
    Forgot,
    Hello,
    Hurry,
    Joined,
    Logged,
    Lost,
    Report,
    SaidAny,
    Sealed,
    Suspect,
    Told,
    Wrote,
    packed,
)
from ranker.workers.whole import CELLS_PER_PART, parts, send_catalogue, send_tables

STUCK_MS = 60_000.0
"""Who has not acknowledged anything for so long is replaced."""

_log = logging.getLogger(__name__)


class Desk:
    """Tells followers and hears them; an AppliedListener.

    Args:
        limit_ms: how long a follower may rely on what it knows after a beat.
        reports: the last counts of each follower that is connected.
        retired: those of followers that have left, added up.
        on_left: called with a follower's number and process id when it has stopped following.
    """

    def __init__(
        self, log: LogWriter, applier: Applier, live: LiveCatalogue, own: OwnWrites, clock: Clock, limit_ms: float
    ) -> None:
        self.log, self.applier, self.live, self.own, self.clock = log, applier, live, own, clock
        self.limit_ms = limit_ms
        self.barrier = Barrier(lambda: [line.member for line in self._lines.values()], clock.monotonic_ms)
        self.reports: dict[int, Counts] = {}
        self.retired: Counts = {}
        self.on_left: Callable[[int, int], None] = lambda _worker, _pid: None
        self._lines: dict[int, Line] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}

    # What happens in the keeper.

    def stood(self, population: Population, applied: int, generation: str) -> None:
        """Everybody gets all tables anew."""
        for line in self._lines.values():
            if line.member.serving:
                self._load(line, send_tables(line, population, applied, generation))

    def sealed(self, offset: int, cells: Mapping[CellName, bytes | None]) -> None:
        """The cells that changed, before the store has them."""
        names = iter(cells.items())
        while part := list(islice(names, CELLS_PER_PART)):
            self._tell(Cells([(key, action, cell) for (key, action), cell in part]))
        self._tell(Sealed(offset))

    def committed(self, applied: int) -> None:
        """The store has them."""
        self._tell(Committed(applied))

    def lost(self) -> None:
        """The store cannot be relied on."""
        self._tell(Lost())

    def changed(self, first: int, changes: Sequence[CatalogueChange]) -> None:
        """The catalogue changed, and its events begin at an offset."""
        last = first - 1
        for part in parts((c.id, c.action, None if c.spec is None else msgspec.json.encode(c.spec)) for c in changes):
            last += len(part)
            self._tell(Changed(last, part))

    def wrote(self, user: str, end: int) -> None:
        """An event of a user was appended."""
        self._tell(Wrote(user, end))

    def forgot(self, user: str) -> None:
        """A user was forgotten."""
        self._tell(Forgot(user, self.clock.now_s()))

    # Followers come, speak and leave.

    def open(self, hello: Hello, transport: asyncio.WriteTransport) -> Line:
        """A follower has said hello: from now on it is told everything, and now what there is."""
        old = self._lines.get(hello.worker)
        if old is not None:
            self.close(old)
        line = Line(hello.worker, hello.pid, transport, Member(self.limit_ms), self.clock.monotonic_ms)
        self._lines[hello.worker] = line
        self._load(line, self._welcome(line, self.log.end))
        return line

    def close(self, line: Line) -> None:
        """It has left; its counts stay."""
        line.end()
        if self._lines.get(line.worker) is line:
            del self._lines[line.worker]
            self._stop_loading(line.worker)
            if (report := self.reports.pop(line.worker, None)) is not None:
                self.retired = added(self.retired, report)
            self.on_left(line.worker, line.pid)
        self.barrier.moved()

    def hear(self, line: Line, message: SaidAny) -> None:
        """Does what a follower asks for."""
        match message:
            case Acked(count):
                self._acked(line, count)
            case Append():
                self._append(line, message)
            case Hurry():
                self.applier.notify()
            case Suspect():
                self.applier.suspect()
            case Report(counts):
                self.reports[line.worker] = unpacked(counts)

    def live_workers(self) -> list[int]:
        """Numbers of the followers that may rank without withholding anything."""
        now_ms = self.clock.monotonic_ms()
        return [line.worker for line in self._lines.values() if line.member.live(now_ms)]

    def lags_ms(self) -> dict[int, float]:
        """By follower, for how long at most it has not acknowledged something."""
        now_ms = self.clock.monotonic_ms()
        return {line.worker: line.member.lag_ms(now_ms) for line in self._lines.values()}

    async def run(self) -> None:
        """Sends beats until cancelled."""
        while True:
            for line in list(self._lines.values()):
                if line.member.lag_ms(self.clock.monotonic_ms()) > STUCK_MS:
                    _log.error("worker %d has not answered for %g s and is given up", line.worker, STUCK_MS / 1000.0)
                    self.close(line)
                elif line.member.serving:
                    self._beat(line)
            await asyncio.sleep(self.limit_ms / BEATS_PER_LIMIT / 2_000.0)

    async def close_all(self) -> None:
        """Gives every follower up."""
        for line in list(self._lines.values()):
            self.close(line)

    def _tell(self, message: Told) -> None:
        if self._lines:
            body = packed(message)
            for line in self._lines.values():
                line.tell_packed(body)

    def _beat(self, line: Line) -> None:
        if line.member.wants_beat(self.clock.monotonic_ms()):
            line.beat(self.applier.lag_ms(), self.log.end)

    def _acked(self, line: Line, count: int) -> None:
        line.member.acknowledge(count, self.clock.monotonic_ms())
        self.barrier.moved()
        if line.member.serving:
            self._beat(line)

    def _append(self, line: Line, message: Append) -> None:
        error = ""
        if self.clock.monotonic_ms() > message.until_ms:
            error = "it came too late"
        else:
            try:
                end = self.log.append([message.line]) + 1
                self.own.wrote(message.user, end)
            except LogError as failure:
                error = str(failure) or type(failure).__name__
        line.tell(Logged(message.number, error))

    async def _welcome(self, line: Line, floor: int) -> None:
        await send_catalogue(line, self.live)
        applier, sent = self.applier, None
        while (stands := (applier.generation, applier.population)) != sent:  # it may stand anew meanwhile
            sent = stands
            if stands[0] is not None:
                await send_tables(line, stands[1], applier.applied, stands[0])
        line.member.serving = True
        line.beat(self.applier.lag_ms(), self.log.end)
        line.tell(Joined(floor))

    def _load(self, line: Line, work: Coroutine[None, None, None]) -> None:
        self._stop_loading(line.worker)
        task = self._loading[line.worker] = asyncio.create_task(work, name=f"state for worker {line.worker}")
        task.add_done_callback(lambda done: self._loaded(line, done))

    def _loaded(self, line: Line, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            return
        _log.error("worker %d cannot be told the state: %r", line.worker, task.exception())
        self.close(line)

    def _stop_loading(self, worker: int) -> None:
        task = self._loading.pop(worker, None)
        if task is not None:
            task.cancel()
