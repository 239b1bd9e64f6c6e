"""One batch on the device's thread: pin what each request needs, run, and if that fails find out whose fault it was.

Nothing here knows the event loop; what it touches of a ticket it only reads.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ranker.inference.engine_errors import ModelFailed, Rejected
from ranker.inference.memory_errors import PagesBusy
from ranker.inference.model import Hold, Member, Model, Result
from ranker.inference.request import Batch
from ranker.inference.tickets import Ticket
from ranker.inference.workspace import Workspaces

LOG = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Monotonic milliseconds."""


@dataclass(eq=False)
class Work:
    """What the device is told to do.

    Args:
        tickets: one for each request of the batch, in order.
        predicted_ms: what the whole batch takes in 99 of 100, as far as is known; a part of it takes no longer.
        most_runs: of the model, should it fail.
        started_ms: when it was dispatched.
        progress_ms: when the model was last called; written by the device, read by the watchdog.
    """

    batch: Batch
    model: Model
    tickets: Sequence[Ticket]
    predicted_ms: float
    most_runs: int
    started_ms: float
    progress_ms: float


@dataclass
class Outcome:
    """What became of the requests; each ticket is in exactly one of the lists.

    Args:
        tokens: that the model was given, of those who were answered.
        runs: how often the model was called; more than once only after a failure.
        returned: back to the queue, with what they cost now.
        left: not computed, as their callers had gone.
        begun_ms, ended_ms: by the device's thread, pinning included; the way there and back is not.
    """

    answered: list[tuple[Ticket, Result]] = field(default_factory=list)
    failed: list[tuple[Ticket, Exception]] = field(default_factory=list)
    returned: list[tuple[Ticket, int]] = field(default_factory=list)
    left: list[Ticket] = field(default_factory=list)
    tokens: int = 0
    runs: int = 0
    begun_ms: float = 0.0
    ended_ms: float = 0.0


Held = tuple[Ticket, Hold]


class BatchRun:
    """Runs a batch once; whatever happens, pins and workspace are given back when `run` returns."""

    def __init__(self, work: Work, workspaces: Workspaces, clock: Clock) -> None:
        self._work = work
        self._workspaces = workspaces
        self._clock = clock
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Every ticket's fate; raises nothing, since the thread must live on."""
        self.outcome.begun_ms = self._clock()
        held: list[Held] = []
        try:
            self._pin(held)
            self._run_parts(self._within_budget(held))
        except BaseException as error:  # a model may raise SystemExit
            self._fail_the_rest(error)
        finally:
            self._unpin(held)
        self.outcome.ended_ms = self._clock()
        return self.outcome

    def _pin(self, held: list[Held]) -> None:
        for ticket in self._work.tickets:
            if ticket.left:
                self.outcome.left.append(ticket)
                continue
            try:
                hold = self._work.model.hold(ticket.payload)
            except PagesBusy:
                self.outcome.returned.append((ticket, ticket.request.token_budget))
            except Exception as error:
                self._fail(ticket, error)
            else:
                held.append((ticket, hold))

    def _unpin(self, held: list[Held]) -> None:
        for _, hold in reversed(held):
            try:
                hold.release()
            except Exception:
                LOG.exception("a hold of %s could not be released", self._work.batch.model_key)

    def _within_budget(self, held: list[Held]) -> list[Held]:
        """Those who fit into the tokens that were scheduled: who grew may only use what others do not."""
        if all(hold.tokens <= ticket.request.token_budget for ticket, hold in held):
            return held
        room = self._work.batch.tokens
        kept: set[Ticket] = set()
        for ticket, hold in sorted(held, key=lambda each: each[1].tokens > each[0].request.token_budget):
            if hold.tokens <= room:
                room -= hold.tokens
                kept.add(ticket)
            else:
                self.outcome.returned.append((ticket, hold.tokens))
        return [each for each in held if each[0] in kept]

    def _run_parts(self, held: list[Held]) -> None:
        parts = deque([held] if held else [])
        while parts:
            part = parts.popleft()
            if self.outcome.runs:
                part = self._still_wanted(part)
            if not part:
                continue
            try:
                results = self._run_once(part)
            except Exception as error:
                self._split(part, parts, error)
            else:
                self.outcome.answered += [(ticket, result) for (ticket, _), result in zip(part, results, strict=True)]
                self.outcome.tokens += sum(hold.tokens for _, hold in part)

    def _run_once(self, part: list[Held]) -> Sequence[Result]:
        self.outcome.runs += 1
        self._work.progress_ms = self._clock()
        members = [Member(ticket.payload, hold) for ticket, hold in part]
        with self._workspaces.batch() as workspace:
            results = self._work.model.run(members, workspace)
        if len(results) != len(members):
            raise ModelFailed(f"{self._work.batch.model_key} gave {len(results)} results for {len(members)} requests")
        return results

    def _split(self, part: list[Held], parts: deque[list[Held]], error: Exception) -> None:
        half = len(part) // 2
        if half and self.outcome.runs < self._work.most_runs:
            parts.extendleft((part[half:], part[:half]))
            return
        for ticket, _ in part:
            self._fail(ticket, error)

    def _still_wanted(self, part: list[Held]) -> list[Held]:
        """After a failure time has passed: who has gone is not computed, who would be late is turned away."""
        end = self._clock() + self._work.predicted_ms
        wanted: list[Held] = []
        for ticket, hold in part:
            if ticket.left:
                self.outcome.left.append(ticket)
            elif end > ticket.request.deadline_ms:
                late = Rejected(ticket.request.request_id, "deadline", 0.0, "its batch failed and has to run again")
                self.outcome.failed.append((ticket, late))
            else:
                wanted.append((ticket, hold))
        return wanted

    def _fail(self, ticket: Ticket, error: BaseException) -> None:
        name = ticket.request.request_id
        failure = ModelFailed(f"request {name!r} of {self._work.batch.model_key}: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self.outcome.failed.append((ticket, failure))

    def _fail_the_rest(self, error: BaseException) -> None:
        found = self.outcome
        told = {*found.left, *(ticket for each in (found.answered, found.failed, found.returned) for ticket, _ in each)}
        for ticket in self._work.tickets:
            if ticket not in told:
                self._fail(ticket, error)
