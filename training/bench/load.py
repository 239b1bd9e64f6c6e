"""An HTTP load from a process of its own: open loop with Poisson arrivals, or a closed loop.

Open loop: a request's latency counts from the instant it was due, whether or not the server, or this
process, was ready for it then; arrivals do not wait for answers. Only the standard library is imported, so
that starting it costs little. It reads one JSON order from stdin and writes one JSON report to stdout.
"""

from __future__ import annotations

import json
import random
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_CONNECTIONS = 900
"""`select` takes descriptors below 1,024; it is the wait that is exact to microseconds everywhere."""

REFUSED_S = -1.0
PAUSE_S = 0.5
ID_MARK = b"@@ID@@"
TIME_MARK = b"@@TIME@@"
EVENTS_PATH = "/v1/events"


@dataclass(frozen=True)
class Order:
    """What to send.

    Args:
        bodies: a file with one JSON body a line, sent in turn; `@@ID@@` becomes an id of its own, `@@TIME@@` the
            instant of sending.
        rate: requests per second; 0 is a closed loop.
        connections: of the closed loop.
        count: ends a closed loop early; 0 does not.
        answer_s: how long after the end answers are waited for.
        events: of an open loop: a file with one event a line, the n-th posted before the n-th body.
        ahead_s: how long before.
    """

    port: int
    path: str
    bodies: str
    seconds: float
    rate: float = 0.0
    connections: int = 8
    count: int = 0
    seed: int = 1
    answer_s: float = 2.0
    events: str = ""
    ahead_s: float = 0.25


@dataclass
class Report:
    """What came of it; `latencies_s` of answers with 200, from when each was due.

    Args:
        statuses: how many answers by status; 0 is a connection that broke or stayed silent.
        degraded: answers by reason.
        stages_ms: sums of `timings_ms`, by stage.
        second_s: the latencies of those that the second stage ranked.
        events_refused: events that were not accepted.
        late_s: how long after they were due requests were sent, the 99th percentile.
    """

    sent: int = 0
    elapsed_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    degraded: dict[str, int] = field(default_factory=dict)
    stages_ms: dict[str, float] = field(default_factory=dict)
    late_s: float = 0.0
    second_s: list[float] = field(default_factory=list)
    events_refused: int = 0


class _Connection:
    """A keep-alive connection with at most one request on it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due_s = 0.0
        self.event = False
        self._received = bytearray()

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, request: bytes, due_s: float, event: bool) -> None:
        self.due_s, self.event = due_s, event
        self._received.clear()
        self.socket.sendall(request)

    def receive(self) -> tuple[int, bytes] | None:
        """Status and body once the answer is whole; status 0 when the connection broke."""
        try:
            chunk = self.socket.recv(1 << 16)
        except OSError:
            chunk = b""
        if not chunk:
            return 0, b""
        self._received += chunk
        head, separator, body = bytes(self._received).partition(b"\r\n\r\n")
        if not separator:
            return None
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        return (int(head[9:12]), body) if len(body) >= length else None


class _Load:
    def __init__(self, order: Order) -> None:
        self.order = order
        self.report = Report()
        self._requests = _requests(order, order.bodies, order.path)
        self._events = _requests(order, order.events, EVENTS_PATH) if order.events else None
        self._idle: deque[_Connection] = deque()
        self._busy: set[_Connection] = set()
        self._late: list[float] = []

    def run(self) -> Report:
        started_s = time.perf_counter()
        end_s = started_s + self.order.seconds
        self._open(started_s, end_s) if self.order.rate else self._closed(end_s)
        give_up_s = time.perf_counter() + self.order.answer_s
        while self._busy and time.perf_counter() < give_up_s:
            self._collect(PAUSE_S)
        self.report.elapsed_s = time.perf_counter() - started_s
        self._count(0, len(self._busy))
        self.report.late_s = sorted(self._late)[int(len(self._late) * 0.99)] if self._late else 0.0
        return self.report

    def _open(self, started_s: float, end_s: float) -> None:
        for due_s, event in self._dues(started_s, end_s):
            while (now_s := time.perf_counter()) < due_s:
                self._collect(due_s - now_s)
            self._late.append(now_s - due_s)
            self._send(due_s, event)

    def _dues(self, started_s: float, end_s: float) -> Iterator[tuple[float, bool]]:
        """Instants at which something is due, in order, and whether it is an event."""
        gaps = random.Random(self.order.seed)
        ahead_s = self.order.ahead_s if self._events is not None else 0.0
        waiting: deque[float] = deque()
        due_s = started_s + gaps.expovariate(self.order.rate)
        while due_s + ahead_s < end_s:
            while waiting and waiting[0] <= due_s:
                yield waiting.popleft(), False
            if self._events is not None:
                yield due_s, True
                waiting.append(due_s + ahead_s)
            else:
                yield due_s, False
            due_s += gaps.expovariate(self.order.rate)
        yield from ((each_s, False) for each_s in waiting)

    def _closed(self, end_s: float) -> None:
        for _ in range(self.order.connections):
            self._send(time.perf_counter())
        while (now_s := time.perf_counter()) < end_s and self._busy and not self._enough():
            for _ in range(self._collect(end_s - now_s)):
                self._send(time.perf_counter())

    def _enough(self) -> bool:
        return bool(self.order.count) and self.report.sent >= self.order.count

    def _send(self, due_s: float, event: bool = False) -> None:
        self.report.sent += not event
        if not self._idle and len(self._busy) >= MAX_CONNECTIONS:
            self._count(0, 1)
            return
        try:
            connection = self._idle.pop() if self._idle else _Connection(self.order.port)
            connection.send(next(self._events if event and self._events else self._requests), due_s, event)
        except OSError:
            self._count(0, 1)
            return
        self._busy.add(connection)

    def _collect(self, timeout_s: float) -> int:
        """Takes in what has been answered within the time; how many answers."""
        readable, _, _ = select.select(self._busy, (), (), timeout_s)
        ended = 0
        for connection in readable:
            answer = connection.receive()
            if answer is not None:
                ended += 1
                self._busy.discard(connection)
                self._take(connection, *answer)
        return ended

    def _take(self, connection: _Connection, status: int, body: bytes) -> None:
        if status == 0:
            self._count(status, 1)
            connection.socket.close()
            return
        self._idle.append(connection)
        if connection.event:
            self.report.events_refused += status != 200 or b'"accepted"' not in body
            return
        self._count(status, 1)
        if status == 200:
            self.report.latencies_s.append(time.perf_counter() - connection.due_s)
            if self.order.path == "/v1/rank":
                self._read(json.loads(body), self.report.latencies_s[-1])

    def _read(self, answer: dict[str, Any], took_s: float) -> None:
        if "second" in answer["versions"]:
            self.report.second_s.append(took_s)
        for reason in answer["degraded"]:
            self.report.degraded[reason] = self.report.degraded.get(reason, 0) + 1
        for stage, took_ms in answer["timings_ms"].items():
            self.report.stages_ms[stage] = self.report.stages_ms.get(stage, 0.0) + took_ms

    def _count(self, status: int, count: int) -> None:
        if count:
            self.report.statuses[str(status)] = self.report.statuses.get(str(status), 0) + count


def _requests(order: Order, file: str, path: str) -> Iterator[bytes]:
    bodies = Path(file).read_bytes().splitlines()
    prefix, number = f"{order.seed}-{time.time_ns()}-".encode(), 0
    while True:
        for body in bodies:
            number += 1
            sent = body.replace(ID_MARK, prefix + b"%d" % number).replace(TIME_MARK, _now())
            head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            yield head.encode() + b"content-length: %d\r\n\r\n" % len(sent) + sent


def _now() -> bytes:
    now_s = time.time()
    return (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s * 1e3) % 1000:03d}Z").encode()


def main() -> None:
    """Obeys the order on stdin."""
    report = _Load(Order(**json.loads(sys.stdin.readline()))).run()
    json.dump(vars(report), sys.stdout)
