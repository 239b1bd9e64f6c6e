"""Processes that are kept: told how to start, started again after they ended, and ended in their own time or not."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from ranker.config import ServeConfig
from ranker.policy_config import PolicyConfig
from ranker.workers.errors import FeedError
from ranker.workers.spawning import Crew
from ranker.workers.start import Start, read_start
from tests.ranker.faults.loaded import until
from tests.ranker.online import run
from tests.ranker.workers.several import alive

TELLS = "import os, sys; line = sys.stdin.readline(); open({0!r}, 'a').write(sys.argv[1] + '\\n')"


def start_of(worker: int, listener: socket.socket) -> Start:
    return Start(worker, "/nowhere", "redis://:secret@nowhere", listener.fileno(), ServeConfig(), PolicyConfig())


def test_the_start_goes_through_a_pipe_as_it_was(tmp_path: Path) -> None:
    with socket.socket() as listener:
        start = start_of(3, listener)
        reading, writing = os.pipe()
        os.write(writing, start.line())
        assert read_start(reading) == start
        os.write(writing, b"{}\n")
        with pytest.raises(FeedError, match="worker"):
            read_start(reading)
        os.close(writing)
        with pytest.raises(FeedError, match="has not said"):
            read_start(reading)
        os.close(reading)


def test_one_that_ends_is_started_again_ever_more_slowly(tmp_path: Path) -> None:
    told = tmp_path / "told"

    async def work() -> None:
        with socket.socket() as listener:
            crew = Crew([start_of(1, listener)], (sys.executable, "-c", TELLS.format(str(told))), (0.01, 0.04))
            running = asyncio.create_task(crew.run())
            await until(lambda: crew.restarts >= 2, 20.0)
            await crew.stop()
            await asyncio.wait_for(running, 5.0)
            restarts = crew.restarts
            await asyncio.sleep(0.1)
            assert crew.restarts == restarts and not crew.pids

    run(work())
    assert set(told.read_text().split()) == {"1"}


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('', flush=True); time.sleep(60)"


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    async def work() -> None:
        with socket.socket() as listener:
            crew = Crew([start_of(1, listener)], (sys.executable, "-c", STUBBORN), grace_s=0.3)
            running = asyncio.create_task(crew.run())
            await until(lambda: bool(crew.pids), 10.0)
            (pid,) = crew.pids.values()
            await asyncio.sleep(0.3)
            await crew.stop()
            await asyncio.wait_for(running, 5.0)
            assert not alive(pid)

    run(work())


def test_one_that_is_given_up_is_replaced(tmp_path: Path) -> None:
    async def work() -> None:
        with socket.socket() as listener:
            waits = "import time; time.sleep(60)"
            crew = Crew([start_of(1, listener)], (sys.executable, "-c", waits), (0.01, 0.01), grace_s=2.0)
            running = asyncio.create_task(crew.run())
            await until(lambda: bool(crew.pids), 10.0)
            before = crew.pids[1]
            crew.give_up(7, before)  # nobody
            crew.give_up(1, before + 1)  # another one
            await asyncio.sleep(0.05)
            assert crew.pids[1] == before
            crew.give_up(1, before)
            await until(lambda: crew.pids.get(1, before) != before, 10.0)
            await crew.stop()
            await running

    run(work())


def test_a_command_that_cannot_be_run_is_tried_again_and_nothing_is_left(tmp_path: Path) -> None:
    async def work() -> None:
        with socket.socket() as listener:
            crew = Crew([start_of(1, listener)], (str(tmp_path / "none"),), (0.01, 0.01))
            running = asyncio.create_task(crew.run())
            await until(lambda: crew.restarts >= 2, 10.0)
            await crew.stop()
            await asyncio.wait_for(running, 5.0)

    run(work())
