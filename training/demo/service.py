"""The service as a process of its own, on a free port, gone with whoever started it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from training.errors import TrainingError

START_S = 60.0
STOP_S = 20.0
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOWN_BYTES = 600
_CODE = "import sys; sys.path.append({root!r}); from ranker.cli import main; sys.exit(main())"


class Started(msgspec.Struct, frozen=True):
    """What a service says when it accepts connections."""

    url: str
    light: str | None = None
    actions: int = 0


class ServiceProcess:
    """A running service; `started` is what it said."""

    def __init__(self, process: subprocess.Popen[bytes], printed: Path, started: Started) -> None:
        self._process = process
        self._printed = printed
        self.started = started

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        return last_words(self._printed)


@contextlib.contextmanager
def service_process(
    log: Path, models: Path, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[ServiceProcess]:
    """Starts the service on a log and models; on leaving it has ended.

    Args:
        options: further ones of `nextaction serve`.
        environment: added to this process's own.

    Raises:
        TrainingError: it did not start; with its own words.
    """
    printed = log.parent / "service.txt"
    process: subprocess.Popen[bytes] | None = None
    try:
        with printed.open("wb") as words, interrupts_wait():
            process = subprocess.Popen(
                [*_command(log, models), *options],
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE,  # it ends when this does
                stdout=subprocess.PIPE,
                stderr=words,
                start_new_session=True,  # so that Ctrl-C does not reach it
            )
        yield ServiceProcess(process, printed, _started(process, printed))
    finally:
        if process is not None:
            _stop(process)


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Within it Ctrl-C waits for the end: what was just started must be known to who ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = {number: signal.signal(number, lambda got, _: waiting.append(got)) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for caught in waiting:
        signal.raise_signal(caught)


def _command(log: Path, models: Path) -> list[str]:
    root = str(Path(__file__).resolve().parents[2])
    paths = ["--log", str(log.resolve()), "--models", str(models.resolve())]
    options = ["--json", "--host", "127.0.0.1", "--port", "0", "--until-stdin-ends"]
    return [sys.executable, "-P", "-c", _CODE.format(root=root), "serve", *paths, *options]


def _started(process: subprocess.Popen[bytes], printed: Path) -> Started:
    assert process.stdout is not None
    line = _first_line(process.stdout, START_S)
    try:
        return msgspec.json.decode(line, type=Started)
    except msgspec.DecodeError as error:
        state = "did not start" if process.poll() is None else f"ended with status {process.returncode}"
        raise TrainingError(f"the service {state}: {last_words(printed) or 'it said nothing'}") from error


def _first_line(stream: IO[bytes], timeout_s: float) -> bytes:
    give_up_s = time.monotonic() + timeout_s
    while (left_s := give_up_s - time.monotonic()) > 0:
        if select.select([stream], [], [], min(left_s, 0.5))[0]:
            return stream.readline()
    return b""


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(STOP_S)
    except BaseException as error:  # a second Ctrl-C too: nothing may write into a folder that is going away
        process.kill()
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
    finally:
        process.stdout.close()


def last_words(path: Path) -> str:
    """The end of a file, on one line."""
    return " ".join(path.read_bytes()[-_SHOWN_BYTES:].decode(errors="replace").split())
