"""Takes the events of the log into the store, in the order of their offsets, one batch at a time.

It follows what is written, durable or not: a store that a power cut left ahead of the log is found out by
its marks. What the store holds is never guessed: each batch reads the store's own offset and generation with its
rows, and a store that is empty, behind, or ahead is taken over anew (`store_marks`) or filled anew
(`rebuild`). Between `apply` and `seal` nothing is awaited, so a request never sees half a batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from features.applied import AppliedListener
from features.applier_settings import ApplierCounts, ApplierSettings
from features.batch import ranking_keys, row_keys
from features.batch_commit import apply_batch, commit_of
from features.errors import FeatureError, StoreError, StoreLost, UnreadableRow
from features.held_store import HeldStore, back_off
from features.label_config import OutcomeWindows
from features.lag import LagMeter
from features.log import RecentLines
from features.log_source import Batch, LogSource
from features.outcomes import WINDOWS
from features.pace import Pace
from features.population import Population
from features.rebuild import Progress, rebuild
from features.state import RowSet, State
from features.store import FeatureStore
from features.store_marks import MARKS, is_filled_from

_log = logging.getLogger(__name__)


@dataclass
class _Position:
    """Where the applier stands: what is in memory, in the store, and read of the log."""

    state: State
    source: LogSource
    held: HeldStore
    waiting: Batch | None = field(default=None)


class Applier:
    """The one writer of a store.

    Args:
        logdir: where the log is.
        written: the writer's `end`: everything below was appended whole.
        monotonic_ms: for the lag.
        recent: of the writer, where it is in this process: what it has need not be read from the log.
        windows: within which feedback counts.
        new_generation: names for what a store holds after a rebuild.
        filling: while a store is filled from the log, how many events have been replayed.
        listener: is told of each step; other processes follow by it.
    """

    def __init__(
        self,
        logdir: Path,
        written: Callable[[], int],
        store: FeatureStore,
        *,
        monotonic_ms: Callable[[], float],
        recent: RecentLines | None = None,
        settings: ApplierSettings | None = None,
        windows: OutcomeWindows = WINDOWS,
        new_generation: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.counts = ApplierCounts()
        self.filling = 0
        self.listener: AppliedListener | None = None
        self._logdir, self._written, self._store = logdir, written, store
        self._monotonic_ms, self._new_generation = monotonic_ms, new_generation
        self._settings = settings or ApplierSettings()
        self._recent = recent
        self._checked_s = 0.0
        self._pace = Pace(self._settings)
        self._windows = windows
        self._at: _Position | None = None
        self._population = Population()
        self._lag = LagMeter()
        self._woken = asyncio.Event()
        self._moved = asyncio.Event()
        self._suspected = False
        self._spoiled = False

    @property
    def population(self) -> Population:
        """Tables over everyone; the last known ones while the store is taken over."""
        return self._population

    @property
    def generation(self) -> str | None:
        """Name of what the store holds; None while it cannot be relied on."""
        return self._at.held.generation if self._at is not None else None

    @property
    def applied(self) -> int:
        """Number of log events in effect in the store, as far as known."""
        return self._at.held.applied if self._at is not None else 0

    @property
    def skipped(self) -> Counter[str]:
        """Events that changed nothing since the store was taken over, by reason."""
        return self._at.state.skipped if self._at is not None else Counter()

    def lag_ms(self) -> float:
        """Age of the oldest event that is not yet in effect."""
        now_ms = self._monotonic_ms()
        self._lag.written(self._written(), now_ms)
        return self._lag.lag_ms(now_ms)

    def notify(self) -> None:
        """Says that there are more events, and somebody waits for them."""
        self._lag.written(self._written(), self._monotonic_ms())
        self._woken.set()

    def suspect(self) -> None:
        """Says that a read found the store other than expected; the applier looks at once."""
        self._suspected = True
        self._woken.set()

    async def recover(self, progress: Progress | None = None) -> None:
        """Start-up: makes the store hold the effects of what is written now.

        Raises:
            StoreError: the store does not answer.
            LogError: the log cannot be read.
        """
        if self._at is None:
            await self._take_over(progress)
        try:
            while await self.step():
                pass
        except (StoreLost, UnreadableRow) as error:
            self._spoiled = isinstance(error, UnreadableRow)
            self._let_go()
            await self.recover(progress)

    async def run(self) -> None:
        """Applies events until cancelled; a failure is logged, counted and tried again."""
        delay_s = self._settings.back_off_s[0]
        while True:
            try:
                await self._turn()
                delay_s = self._settings.back_off_s[0]
            except StoreLost as error:
                self._failed(error, "the store is taken over anew: %s")
                delay_s = await back_off(delay_s, self._settings)
            except StoreError as error:
                self.counts.retries += 1
                self.counts.last_error = str(error)
                delay_s = await back_off(delay_s, self._settings)
            except Exception as error:
                # Half a batch may be in memory, or rows be unreadable, so nothing of it is kept.
                self.counts.crashes += 1
                self._spoiled = isinstance(error, UnreadableRow) or not isinstance(error, FeatureError)
                self._failed(
                    error, "the applier failed and starts again: %s", trace=not isinstance(error, FeatureError)
                )
                delay_s = await back_off(delay_s, self._settings)

    async def wait_applied(self, offset: int, timeout_s: float) -> bool:
        """Whether everything below `offset` came to be in effect within the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.generation is None or self.applied < offset:
                    await self._moved.wait()
        return self.generation is not None and self.applied >= offset

    async def step(self) -> bool:
        """Applies one batch; False when nothing was waiting.

        Raises:
            StoreLost: the store is not what it was.
            StoreError: it did not answer; the same batch is tried again by the next call.
        """
        at = self._at
        assert at is not None, "recover or run comes first"
        batch = self._next_batch(at)
        if batch is None:
            return False
        rowset = await self._load(at, batch)
        cells = apply_batch(at.state, batch, rowset)
        # From here on the batch is in memory: only its commit is tried again.
        at.waiting = None
        await asyncio.sleep(0)
        commit = commit_of(at.state, batch, rowset, cells)
        at.held.keep(rowset.rows, rowset.changed)
        if self.listener is not None:
            self.listener.sealed(commit.applied, commit.cells)
        await at.held.commit(commit)
        self._advance(batch)
        return True

    def close(self) -> None:
        """Closes the log's reader."""
        self._let_go()

    async def _turn(self) -> None:
        if self._at is None:
            await self._take_over(None)
        # Batches whose rows are all at hand read nothing, so that they would not notice.
        if self._suspected or asyncio.get_running_loop().time() - self._checked_s >= self._settings.check_s:
            await self._check()
        if await self.step():
            behind = self._written() - self.applied
            # A store in this process never lets go of the loop by itself.
            await asyncio.sleep(0.0 if behind else self._settings.pause_s)
            # Under load there is always something more: it gathers too, or each exchange would be for a few events.
            if behind < self._settings.batch_events:
                await self._sleep(self._pace.gather_s)
            return
        await self._idle()

    async def _sleep(self, limit_s: float) -> None:
        """Until it is woken, but not longer than this."""
        with contextlib.suppress(TimeoutError):
            # Not wait_for: until Python 3.12 that may take a cancellation for an answer.
            async with asyncio.timeout(limit_s):
                await self._woken.wait()
        self._woken.clear()

    async def _idle(self) -> None:
        """Waits for more; looks at the store now and then."""
        started_s = asyncio.get_running_loop().time()
        self._woken.clear()
        while self._written() <= self.applied and not self._suspected:
            await self._sleep(self._settings.poll_s)
            if asyncio.get_running_loop().time() - started_s >= self._settings.check_s:
                self._suspected = True

    async def _check(self) -> None:
        assert self._at is not None
        await self._at.held.check()
        self._suspected, self._checked_s = False, asyncio.get_running_loop().time()

    async def _take_over(self, progress: Progress | None) -> None:
        end = self._written()
        snapshot = await self._store.read(MARKS, self._settings.read_timeout_ms)
        if not self._spoiled and is_filled_from(snapshot, self._logdir, end, self._windows):
            assert snapshot.applied is not None and snapshot.rows[0] is not None
            population = Population()
            # In a thread: large tables take long on the loop, and nobody else has these yet.
            await asyncio.to_thread(population.load, await self._store.population(), snapshot.applied)
            self.counts.take_overs += 1
            self._stand(population, snapshot.applied, snapshot.rows[0].decode("ascii", "replace"))
            return
        report = _log.warning if snapshot.applied or self._spoiled else _log.info
        report("the store's %s events are not the log's %d: it is filled from the log", snapshot.applied or 0, end)

        def note(events: int, written: int) -> None:
            self.filling = events
            if progress is not None:
                progress(events, written)

        rebuilt = await rebuild(
            self._logdir, self._store, self._new_generation(), stop=end, progress=note, windows=self._windows
        )
        self.counts.rebuilds += 1
        self._stand(rebuilt.population, rebuilt.applied, rebuilt.generation)

    def _stand(self, population: Population, applied: int, generation: str) -> None:
        self._population = population
        self._spoiled = False
        held = HeldStore(self._store, generation, applied, self._settings, self.counts)
        source = LogSource(self._logdir, applied, self._recent)
        self._at = _Position(State(population, windows=self._windows), source, held)
        self._suspected = False
        self._lag.applied(applied)
        self._moved.set()
        self._moved = asyncio.Event()
        if self.listener is not None:
            self.listener.stood(population, applied, generation)

    def _let_go(self) -> None:
        if self._at is not None:
            self._at.source.close()
            self._at = None
            if self.listener is not None:
                self.listener.lost()

    def _next_batch(self, at: _Position) -> Batch | None:
        if at.waiting is None:
            written = self._written()
            batch = at.source.read(self._pace.next_batch(written - at.held.applied), written)
            if batch.offset == at.held.applied:
                return None
            at.waiting = batch
        return at.waiting

    async def _load(self, at: _Position, batch: Batch) -> RowSet:
        rankings = await at.held.rows(ranking_keys(batch.events))
        return RowSet({**rankings, **await at.held.rows(row_keys(batch.events, rankings, batch.new))})

    def _advance(self, batch: Batch) -> None:
        self.counts.batches += 1
        self.counts.events += len(batch.events)
        self._lag.applied(batch.offset)
        self._moved.set()
        self._moved = asyncio.Event()
        if self.listener is not None:
            self.listener.committed(batch.offset)

    def _failed(self, error: Exception, message: str, trace: bool = False) -> None:
        self.counts.last_error = str(error) or type(error).__name__
        _log.warning(message, self.counts.last_error, exc_info=error if trace else None)
        self._let_go()
