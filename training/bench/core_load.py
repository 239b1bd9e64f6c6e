"""Open-loop arrivals in phases, from a process of its own: `python -m training.bench.core_load`.

Every request is recorded with the instant it was due, from which its latency counts, so that a recovery can be read
from the records. One JSON order on stdin, one JSON list of records on stdout; only the standard library is imported.
"""

from __future__ import annotations

import json
import random
import select
import socket
import sys
import time
from dataclasses import dataclass
from typing import NamedTuple

MAX_CONNECTIONS = 900
"""`select`, which waits exactly to microseconds, takes descriptors below 1,024."""
UNSENT, BROKEN = -1, 0
"""Statuses of a request that found no free connection, and of one that was not answered."""


class Record(NamedTuple):
    """One request; `due_s` counts from the start of the first phase."""

    due_s: float
    took_s: float
    status: int
    priority: str


@dataclass(frozen=True)
class Phase:
    """Poisson arrivals.

    Args:
        rate: per second.
        premium: the share of the requests that are premium.
    """

    rate: float
    seconds: float
    premium: float = 0.0


@dataclass(frozen=True)
class Plan:
    """What to send.

    Args:
        answer_s: how long after the end answers are waited for.
    """

    port: int
    phases: tuple[Phase, ...]
    budget_ms: float = 50.0
    seed: int = 1
    answer_s: float = 1.0


class _Line:
    """A keep-alive connection with at most one request on it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due_s, self.priority = 0.0, ""

    def fileno(self) -> int:
        return self.socket.fileno()

    def status(self) -> int:
        """Of the answer, which is small enough to come whole."""
        try:
            return int(self.socket.recv(4096)[9:12] or BROKEN)
        except OSError:
            return BROKEN


class Load:
    """Sends a plan and records what came of it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._draw = random.Random(plan.seed)
        self._messages = {priority: message(priority, plan.budget_ms) for priority in ("premium", "normal")}
        self._idle: list[_Line] = []
        self._busy: set[_Line] = set()
        self._start_s = 0.0
        self.records: list[Record] = []

    def run(self) -> list[Record]:
        """All records, in the order in which they were known."""
        self._start_s = due_s = time.perf_counter()
        for phase in self._plan.phases:
            end_s = due_s + phase.seconds
            due_s += self._draw.expovariate(phase.rate)
            while due_s < end_s:
                while (now_s := time.perf_counter()) < due_s:
                    self._collect(due_s - now_s)
                self._send(due_s, "premium" if self._draw.random() < phase.premium else "normal")
                due_s += self._draw.expovariate(phase.rate)
            due_s = end_s
        give_up_s = time.perf_counter() + self._plan.answer_s
        while self._busy and time.perf_counter() < give_up_s:
            self._collect(0.1)
        for line in self._busy:
            self._record(line, BROKEN)
        return self.records

    def _send(self, due_s: float, priority: str) -> None:
        if not self._idle and len(self._busy) >= MAX_CONNECTIONS:
            self.records.append(Record(due_s - self._start_s, 0.0, UNSENT, priority))
            return
        line = self._idle.pop() if self._idle else _Line(self._plan.port)
        line.due_s, line.priority = due_s, priority
        line.socket.sendall(self._messages[priority])
        self._busy.add(line)

    def _collect(self, timeout_s: float) -> None:
        readable, _, _ = select.select(self._busy, (), (), timeout_s)
        for line in readable:
            self._record(line, line.status())
            self._busy.discard(line)
            self._idle.append(line)

    def _record(self, line: _Line, status: int) -> None:
        took_s = time.perf_counter() - line.due_s
        self.records.append(Record(line.due_s - self._start_s, took_s, status, line.priority))


def message(priority: str, budget_ms: float) -> bytes:
    """One request as bytes."""
    body = json.dumps({"x": [1, 2, 3, 4, 5, 6, 7, 8], "priority": priority, "budget_ms": budget_ms}).encode()
    return b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def main() -> None:
    """Obeys the order on stdin."""
    order = json.loads(sys.stdin.readline())
    phases = tuple(Phase(**phase) for phase in order.pop("phases"))
    json.dump(Load(Plan(phases=phases, **order)).run(), sys.stdout)


if __name__ == "__main__":
    main()
