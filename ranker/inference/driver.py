"""Between the scheduler and the device: dispatch, what comes back, and a device that does not.

All of it runs on the event loop. A turn of the loop that brings requests, an end or an alarm polls once, so a burst is
one decision. When a batch ends the next one is dispatched first, and the answers are handed out while it runs.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

import msgspec

from ranker.inference.alarm import Alarm, Later, loop_later
from ranker.inference.batch_run import Clock, Outcome, Work
from ranker.inference.device import Device, monotonic_ms
from ranker.inference.engine_config import EngineConfig
from ranker.inference.engine_errors import DeviceStuck, Rejected
from ranker.inference.engine_stats import EngineStats
from ranker.inference.gate import RETRY_MS, Gate
from ranker.inference.handoff import Handoff
from ranker.inference.request import Batch, Rejection
from ranker.inference.scheduler import Scheduler
from ranker.inference.tickets import Ticket, Tickets
from ranker.inference.versions import Versions


@dataclass(frozen=True)
class Surroundings:
    """What tests replace.

    Args:
        clock: monotonic ms; the one clock of requests, scheduler and device.
        later: timers of the event loop.
    """

    clock: Clock = monotonic_ms
    later: Later = loop_later


@dataclass(frozen=True)
class Parts:
    """What the driver shares with the engine."""

    versions: Versions
    stats: EngineStats
    gate: Gate


class Driver:
    """Gives one scheduler its clock and its device, and each ticket its end."""

    def __init__(
        self, scheduler: Scheduler, device: Device, parts: Parts, limits: EngineConfig, around: Surroundings
    ) -> None:
        self.scheduler = scheduler
        self.limits = limits
        self.tickets = Tickets(self._left, parts.versions.unuse)
        self.running: Work | None = None
        self.stuck: Work | None = None
        self._ended_work: Work | None = None
        self.handoff = Handoff()
        self._clock = around.clock
        self._device = device
        self._versions = parts.versions
        self._stats = parts.stats
        self._gate = parts.gate
        self._wake = Alarm(self._turn, self._clock, around.later)
        self._watch = Alarm(self._look, self._clock, around.later)
        self._idle_since_ms = -math.inf
        self._turn_due = False
        self._drained: asyncio.Future[None] | None = None

    def admit(self, ticket: Ticket) -> None:
        """Offers a ticket that is open; an idle device looks at it once the loop has read what else there is."""
        now = self._clock()
        request = ticket.request
        device_ms = self.handoff.before(request.deadline_ms, request.deadline_ms - request.arrival_ms)
        if device_ms != request.deadline_ms:
            request = msgspec.structs.replace(request, deadline_ms=device_ms)
        if rejections := self.scheduler.offer(request, now):
            self._tell(rejections)
            if request.request_id not in self.tickets:
                return
        if self.running is not None:
            self._arm(now)
        elif not self._turn_due:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    async def drained(self, longest_ms: float) -> None:
        """Waits until nobody waits and nothing runs, at most so long."""
        drained = self._drained = asyncio.get_running_loop().create_future()
        self._note_idle()
        await asyncio.wait({drained}, timeout=longest_ms / 1000.0)
        self._drained = None

    def dismiss(self) -> None:
        """Tells all who are queued that the engine is closing."""
        for ticket in self.tickets:
            name = ticket.request.request_id
            if self.scheduler.cancel(name):
                self._reject(ticket, self._gate.refused(name, "closing"))

    def stop(self) -> None:
        """Ends the device's thread; a batch that runs even now is given up."""
        if self.running is not None:
            self._give_up(self.running)
        self._wake.cancel()
        self._watch.cancel()
        self._device.close()

    def _tell(self, rejections: list[Rejection]) -> None:
        for rejection in rejections:
            self._stats.rejected(rejection.reason)
            self._reject(self.tickets.of(rejection.request_id), Rejected.by_scheduler(rejection))

    def _reject(self, ticket: Ticket, error: Exception) -> None:
        self.tickets.fail(ticket, error)
        self._note_idle()

    def _turn(self) -> None:
        """Asks the scheduler once: a batch for an idle device, and who has waited too long."""
        self._turn_due = False
        if self.stuck is not None:
            return
        now = self._clock()
        batch = self.scheduler.poll(now)
        if batch is not None:
            self._dispatch(batch, now)
        if rejections := self.scheduler.drain_rejections():
            self._tell(rejections)
        self._arm(now)

    def _arm(self, now: float) -> None:
        wake = self.scheduler.wake_at(now)
        if wake is not None:
            # While a batch runs only expiries are due: to the next millisecond is soon enough, and costs no spinning.
            self._wake.set(wake if self.running is None else math.ceil(max(wake, now + 1.0)))

    def _dispatch(self, batch: Batch, now: float) -> None:
        tickets = [self.tickets.of(request.request_id) for request in batch.requests]
        version = self._versions.find(batch.model_key)
        assert version is not None, f"{batch.model_key} left while it was in use"
        for ticket in tickets:
            ticket.left = ticket.future.cancelled()  # the loop has not told us yet
        predicted = self.scheduler.predicted_ms(batch.model_key, batch.tokens) or 0.0
        self._versions.use(batch.model_key)  # the device reads its shards until the batch ends, whoever still waits
        self.running = Work(batch, version.model, tickets, predicted, self.limits.most_runs, now, now)
        self._device.start(self.running, self._ended)
        # The thread takes a while to wake: time for what need not come first.
        self._stats.dispatched(batch, now, self._idle_since_ms, self.scheduler.config.max_batch_tokens)
        self._watch.set(now + self._patience_ms(self.running))

    def _ended(self, work: Work, outcome: Outcome) -> None:
        """The device is free: the next batch goes first, then this one's answers; what can wait is last.

        When nobody waits for the device the answers go first, and even what the batch teaches comes after them.
        """
        now = self._clock()
        self._versions.unuse(work.batch.model_key)
        if work is self.stuck:
            self.stuck, self._gate.stuck = None, False
            self._idle_since_ms = now
        if work is not self.running:
            return
        self._ended_work = work
        if self.scheduler.queued:
            self._free(work, outcome, now)
        self._settle(outcome, now)
        asyncio.get_running_loop().call_soon(self._tidy, work, outcome, now)

    def _free(self, work: Work, outcome: Outcome, now: float) -> None:
        """The device takes the next batch, if there is one."""
        self.running, self._idle_since_ms = None, now
        self._learn(work, outcome, now)
        if self.scheduler.queued:
            self._turn()

    def _tidy(self, work: Work, outcome: Outcome, now: float) -> None:
        """What comes after the callers have heard."""
        if work is self.running:
            self._free(work, outcome, now)
        if self._ended_work is work:
            self._ended_work = None
        self._stats.ended(work, outcome, now)
        for ticket, tokens in outcome.returned:
            self._return(ticket, tokens)
        self._note_idle()

    def _learn(self, work: Work, outcome: Outcome, now: float) -> None:
        took = outcome.ended_ms - outcome.begun_ms
        self.handoff.took(now - work.started_ms - took)
        # What ran teaches, not what was planned: some may have left, or cost less than they might have.
        teaches = outcome.runs == 1 and outcome.tokens > 0
        ran = msgspec.structs.replace(work.batch, tokens=outcome.tokens) if teaches else work.batch
        self.scheduler.done(ran, 0.0, took + self.handoff.typical_ms, failed=not teaches)

    def _settle(self, outcome: Outcome, now: float) -> None:
        for ticket, result in outcome.answered:
            if now > ticket.request.deadline_ms:
                self._stats.counts["late"] += 1
                self.tickets.fail(
                    ticket, self._gate.refused(ticket.request.request_id, "deadline", detail="ended late")
                )
            else:
                self._stats.counts["left" if ticket.left else "answered"] += 1
                self.tickets.answer(ticket, result)
        for ticket, error in outcome.failed:
            self._stats.counts["failed"] += 1
            self.tickets.fail(ticket, error)
        for ticket in outcome.left:
            self.tickets.close(ticket)

    def _return(self, ticket: Ticket, tokens: int) -> None:
        """Its pages left or were in use: back to the queue with what it costs now, a few times at most."""
        ticket.returns += 1
        if ticket.left:
            self.tickets.close(ticket)
        elif ticket.returns > self.limits.most_returns:
            detail = f"its pages were not to be had {ticket.returns} times"
            self.tickets.fail(ticket, self._gate.refused(ticket.request.request_id, "busy", RETRY_MS, detail))
        else:
            ticket.request = msgspec.structs.replace(ticket.request, token_budget=tokens)
            self.admit(ticket)

    def _left(self, ticket: Ticket) -> None:
        if self.scheduler.cancel(ticket.request.request_id):
            self._stats.counts["left"] += 1
            self.tickets.close(ticket)
            self._note_idle()

    def _patience_ms(self, work: Work) -> float:
        return max(self.limits.stuck_after_ms, self.limits.stuck_factor * work.predicted_ms)

    def _look(self) -> None:
        """Whether the device still moves."""
        work = self.running
        if work is None or work is self._ended_work:
            return
        end = work.progress_ms + self._patience_ms(work)
        if self._clock() < end:
            self._watch.set(end)
        else:
            self._give_up(work)

    def _give_up(self, work: Work) -> None:
        """The device hangs: its callers and all who wait are told. Pins and workspace stay with it until it ends."""
        self.running, self.stuck, self._gate.stuck = None, work, True
        self.scheduler.abandon(work.batch)
        for ticket in self.tickets:
            name = ticket.request.request_id
            if ticket in work.tickets:
                self._reject(ticket, DeviceStuck(f"request {name!r}: batch {work.batch.batch_id} did not end"))
            else:
                self.scheduler.cancel(name)
                self._reject(ticket, self._gate.refused(name, "stuck", RETRY_MS))

    def _note_idle(self) -> None:
        if self._drained is not None and not len(self.tickets) and self.running is None:
            self._drained.set_result(None)
            self._drained = None
