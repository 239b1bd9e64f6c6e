"""The engine against the shared floor, by the shared load generator: `python -m tests.real.inference_floor`.

Not a test: it takes minutes, and its figures are to be read. It says so when the shared bench is not beside this clone.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / ".." / "shared" / "bench"
COLUMNS = ("goodput_s", "added_p50", "added_p99", "late_share", "recover_s", "items_executed")


@contextmanager
def floor(environment: Mapping[str, str], log: Path) -> Iterator[int]:
    """The shared floor on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    settings = {**os.environ, "PORT": str(port), "MODEL_LOG": str(log), **environment}
    server = subprocess.Popen([sys.executable, str(BENCH / "floor.py")], env=settings)
    try:
        _wait_for(port)
        yield port
    finally:
        server.terminate()
        server.wait(10.0)


@contextmanager
def engine(sleep_ms: float, log: Path) -> Iterator[int]:
    """Our engine behind the bare front."""
    command = [sys.executable, "-m", "training.bench.core_server", "engine", "--until-stdin-ends"]
    command += ["--sleep-ms", str(sleep_ms), "--model-log", str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            port: int = json.loads(server.stdout.readline())["port"]
            yield port
        finally:
            server.stdin.close()
            server.wait(30.0)


def load(port: int, log: Path, *options: str) -> dict[str, Any]:
    """One run of the shared load generator."""
    command = [sys.executable, str(BENCH / "loadtest.py"), "--port", str(port), "--model-log", str(log), *options]
    found = subprocess.run(command, capture_output=True, check=True, text=True)
    report: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return report


def show(name: str, report: Mapping[str, Any]) -> None:
    """One line."""
    print(f"{name:44}", *(f"{column} {report[column]}" for column in COLUMNS if column in report), flush=True)


def compare(seconds: float, folder: Path) -> None:
    """All lines: the latencies in turns, then overload, then clients that leave."""
    number = 0
    options: tuple[str, ...]

    def log() -> Path:
        nonlocal number
        number += 1
        return folder / f"{number}.log"

    for rate in ("300", "600", "1200"):
        options = ("--rate", rate, "--secs", str(seconds), "--service-ms", "1")
        with engine(1.0, at := log()) as port:
            show(f"engine, {rate}/s", load(port, at, *options))
        for window in ("0", "2"):
            with floor({"WINDOW_MS": window}, at := log()) as port:
                show(f"floor, window {window} ms, {rate}/s", load(port, at, *options))
    for rate in ("1600", "3200"):
        options = ("--rate", rate, "--secs", str(seconds), "--service-ms", "20", "--probe-secs", "12")
        with engine(20.0, at := log()) as port:
            load(port, at, "--rate", "200", "--secs", "1", "--warm", "0.5")
            show(f"engine, 20 ms x 16, {rate}/s", load(port, at, *options))
        for policy in ("edf", "fifo"):
            with floor({"POLICY": policy, "MODEL_SLEEP_MS": "20"}, at := log()) as port:
                show(f"floor, {policy}, 20 ms x 16, {rate}/s", load(port, at, *options))
    options = ("--rate", "6400", "--burst", "64", "--secs", "0.01", "--warm", "0", "--settle", "1.5")
    with engine(200.0, at := log()) as port:
        show("engine, 64 clients leave", load(port, at, *options, "--cancel-after-ms", "50"))
    with floor({"POLICY": "edf", "DEADLINE_MS": "5000", "MODEL_SLEEP_MS": "200"}, at := log()) as port:
        show("floor, 64 clients leave", load(port, at, *options, "--cancel-after-ms", "50"))


def _wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"nothing listens on port {port}")


def main() -> int:
    """Runs, or says what is missing."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    if not (BENCH / "loadtest.py").exists():
        print("not measured: the shared bench is not beside this clone", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        compare(options.seconds, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
