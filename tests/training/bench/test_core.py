"""The inference bench: what its records say, and its servers over real sockets."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ranker.commands.bench_core import table
from training.bench.core import ENGINE, FLOORS, Kind, Size, asked, scheduler, sent, served
from training.bench.core_figures import added_ms, goodput, in_time, recovery_ms, share_in_time
from training.bench.core_load import BROKEN, Phase, Plan, Record, message
from training.bench.figures import spread


def record(due_s: float, took_ms: float = 10.0, status: int = 200, priority: str = "normal") -> Record:
    return Record(due_s, took_ms / 1000.0, status, priority)


def test_only_an_answer_by_its_deadline_counts() -> None:
    records = [record(0.0), record(0.1, took_ms=51.0), record(0.2, status=503), record(0.3, status=BROKEN)]
    assert [in_time(each, 50.0) for each in records] == [True, False, False, False]
    assert goodput(records, 50.0, 0.5) == 2.0


def test_added_time_is_of_answers_only() -> None:
    assert added_ms([record(0.0, 3.0), record(0.0, 900.0, status=503)], 0.5, 1.0) == pytest.approx(2.0)


def test_a_recovery_ends_with_the_first_span_that_is_as_good_as_before() -> None:
    before = [record(number / 100) for number in range(100)]
    after = [record(2.0 + number / 100, status=503 if number < 12 else 200) for number in range(100)]
    assert recovery_ms(before + after, (1.0, 2.0), 50.0) == 150.0
    assert recovery_ms(before + after[20:], (1.0, 2.0), 50.0) == 200.0  # spans in which nothing was sent prove nothing
    assert recovery_ms([*before, record(2.0, status=503)], (1.0, 2.0), 50.0) == math.inf


def test_shares_are_by_priority() -> None:
    records = [record(0.0), record(0.0, status=503), record(0.0, priority="premium")]
    assert share_in_time(records, "normal", 50.0) == 0.5
    assert share_in_time(records, "shadow", 50.0) == 0.0


@pytest.mark.parametrize("kind", [ENGINE, *FLOORS], ids=lambda kind: kind.name)
def test_each_server_answers_an_open_loop(kind: Kind) -> None:
    with served(kind, 1.0) as port:
        records = sent(Plan(port, (Phase(100.0, 0.2), Phase(200.0, 0.2, premium=0.5)), budget_ms=5000.0))
        figures = asked(port)
    assert {each.status for each in records} == {200}
    assert figures["executed"] == len(records) > 20
    assert {each.priority for each in records if each.due_s > 0.2} == {"premium", "normal"}


def test_the_engine_says_why_it_refuses() -> None:
    with served(ENGINE, 1.0) as port, socket.create_connection(("127.0.0.1", port)) as call:
        call.sendall(message("normal", 0.0))
        head, _, body = call.recv(4096).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503") and json.loads(body)["reason"] == "deadline"


@pytest.fixture
def draining() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "training.bench.core_server", "engine", "--sleep-ms", "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        yield server
        server.kill()


def test_a_server_that_is_told_to_stop_answers_what_it_was_asked(draining: subprocess.Popen[bytes]) -> None:
    assert draining.stdout is not None
    port = json.loads(draining.stdout.readline())["port"]
    with socket.create_connection(("127.0.0.1", port)) as first, socket.create_connection(("127.0.0.1", port)) as other:
        first.sendall(message("normal", 5000.0))
        while asked(port)["dispatched"] == 0:
            pass
        other.sendall(message("normal", 5000.0))
        while asked(port)["offered"] < 2:
            pass
        os.kill(draining.pid, signal.SIGTERM)
        assert first.recv(4096).startswith(b"HTTP/1.1 200") and other.recv(4096).startswith(b"HTTP/1.1 200")
    assert draining.wait(10.0) == 0


def test_batches_are_logged_for_other_load_generators(tmp_path: Path) -> None:
    log = tmp_path / "batches"
    with served(Kind("engine", ("engine", "--model-log", str(log))), 1.0) as port:
        threads = [threading.Thread(target=ask, args=(port,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(size for _, size in struct.iter_unpack("<dI", log.read_bytes())) == 4


def ask(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as call:
        call.sendall(message("normal", 5000.0))
        call.recv(4096)


def test_the_table_names_each_figure_with_its_target() -> None:
    one = spread([1.0])
    names = ("engine", "floor, window 0", "floor, window 2 ms")
    report = {
        "latency": [
            {
                "rate": 300.0,
                "added_p50_ms": dict.fromkeys(names, one),
                "added_p99_ms": dict.fromkeys(names, one),
                "p50_ratio": one,
                "p99_ratio": one,
            }
        ],
        "overload": [
            {"factor": 2.0, "offered": 1600.0, "best": one, "goodput_share": one, "recovery_ms": one, "late_share": one}
        ],
        "premium": {
            "budget_ms": 100.0,
            "normal_over_its_share": one,
            "normal_in_time": one,
            "premium_in_time": one,
            "normal_wait_max_ms": one,
        },
        "leaving": {"engine": one},
        "scheduler": scheduler(Size(rounds=1, depths=(64,)), lambda text: None),
    }
    lines = "\n".join(table(report, {"cores": 2, "load_1m": 0.1, "gpu": "not measured"}))
    for wanted in ("not measured", "at most 1.3", "at least 0.95", "at most 0.001", "never 0", "64 queued"):
        assert wanted in lines
