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


@dataclass(frozen=True)
class Order:
    """What to send.

    Args:
        bodies: a file with one JSON body a line, sent in turn; `@@ID@@` becomes an id of its own.
        rate: requests per second; 0 is a closed loop.
        connections: of the closed loop.
        count: ends a closed loop early; 0 does not.
        answer_s: how long after the end answers are waited for.
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


@dataclass
class Report:
    """What came of it; `latencies_s` of answers with 200, from when each was due.

    Args:
        statuses: how many answers by status; 0 is a connection that broke or stayed silent.
        degraded: answers by reason.
        stages_ms: sums of `timings_ms`, by stage.
        late_s: how long after they were due requests were sent, the 99th percentile.
    """

    sent: int = 0
    elapsed_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    degraded: dict[str, int] = field(default_factory=dict)
    stages_ms: dict[str, float] = field(default_factory=dict)
    late_s: float = 0.0


class _Connection:
    """A keep-alive connection with at most one request on it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due_s = 0.0
        self._received = bytearray()

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, request: bytes, due_s: float) -> None:
        self.due_s = due_s
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
        self._requests = _requests(order)
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
        gaps = random.Random(self.order.seed)
        due_s = started_s + gaps.expovariate(self.order.rate)
        while due_s < end_s:
            while (now_s := time.perf_counter()) < due_s:
                self._collect(due_s - now_s)
            self._late.append(now_s - due_s)
            self._send(due_s)
            due_s += gaps.expovariate(self.order.rate)

    def _closed(self, end_s: float) -> None:
        for _ in range(self.order.connections):
            self._send(time.perf_counter())
        while (now_s := time.perf_counter()) < end_s and self._busy and not self._enough():
            for _ in range(self._collect(end_s - now_s)):
                self._send(time.perf_counter())

    def _enough(self) -> bool:
        return bool(self.order.count) and self.report.sent >= self.order.count

    def _send(self, due_s: float) -> None:
        self.report.sent += 1
        if not self._idle and len(self._busy) >= MAX_CONNECTIONS:
            self._count(0, 1)
            return
        try:
            connection = self._idle.pop() if self._idle else _Connection(self.order.port)
            connection.send(next(self._requests), due_s)
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
        self._count(status, 1)
        if status == 0:
            connection.socket.close()
            return
        self._idle.append(connection)
        if status == 200:
            self.report.latencies_s.append(time.perf_counter() - connection.due_s)
            if self.order.path == "/v1/rank":
                self._read(json.loads(body))

    def _read(self, answer: dict[str, Any]) -> None:
        for reason in answer["degraded"]:
            self.report.degraded[reason] = self.report.degraded.get(reason, 0) + 1
        for stage, took_ms in answer["timings_ms"].items():
            self.report.stages_ms[stage] = self.report.stages_ms.get(stage, 0.0) + took_ms

    def _count(self, status: int, count: int) -> None:
        if count:
            self.report.statuses[str(status)] = self.report.statuses.get(str(status), 0) + count


def _requests(order: Order) -> Iterator[bytes]:
    bodies = Path(order.bodies).read_bytes().splitlines()
    prefix, number = f"{order.seed}-{time.time_ns()}-".encode(), 0
    while True:
        for body in bodies:
            number += 1
            sent = body.replace(ID_MARK, prefix + b"%d" % number)
            head = f"POST {order.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            yield head.encode() + b"content-length: %d\r\n\r\n" % len(sent) + sent


def main() -> None:
    """Obeys the order on stdin."""
    report = _Load(Order(**json.loads(sys.stdin.readline()))).run()
    json.dump(vars(report), sys.stdout)
