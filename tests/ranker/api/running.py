"""A real server on a free port, in a thread of the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ranker.api.app import create_app
from ranker.api.limits import Limits
from ranker.clock import SystemClock
from ranker.inference.memory_report import MemorySource
from ranker.server import listen, run_on_uvloop, serve
from tests.ranker.api.fake_service import FakeService


@contextmanager
def running(service: FakeService, limits: Limits | None = None, memory: Sequence[MemorySource] = ()) -> Iterator[str]:
    """Gives the URL; on leaving, the server has stopped and the port is free."""
    started: threading.Event = threading.Event()
    found: list[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        stop = asyncio.Event()

        def announce(url: str) -> None:
            found.append((url, asyncio.get_running_loop(), stop))
            started.set()

        app = create_app(service, limits or Limits(), SystemClock(), memory)
        await serve(app, listen(), stop, on_started=announce)

    thread = threading.Thread(target=lambda: run_on_uvloop(main()), daemon=True)
    thread.start()
    assert started.wait(10), "the server did not start"
    url, loop, stop = found[0]
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(15)
        assert not thread.is_alive(), "the server did not stop"
