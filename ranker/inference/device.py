"""The one thread of a device: it takes a batch, runs it, and says so to the event loop in one call.

A batch costs one put into a queue that wakes the thread, and one `call_soon_threadsafe` back, however many requests it
holds. The thread is a daemon: a device that hangs must not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from ranker.inference.batch_run import BatchRun, Clock, Outcome, Work
from ranker.inference.workspace import Workspaces

LOG = logging.getLogger(__name__)

Begin = Callable[[], object]
"""Called once, on the device's thread, before its first batch."""

Ended = Callable[[Work, Outcome], None]
"""Called on the event loop."""


def monotonic_ms() -> float:
    """Milliseconds since some start; the engine's clock."""
    return time.perf_counter() * 1000.0


class Device(Protocol):
    """Where batches run, one at a time."""

    def start(self, work: Work, ended: Ended) -> None:
        """Begins; returns at once."""
        ...

    def close(self) -> None:
        """Takes no more; does not wait for what runs."""
        ...


class ThreadDevice:
    """A device driven by a thread of its own.

    Args:
        workspaces: one for the batch in flight.
        clock: the engine's.
        begin: sets what belongs to the thread, such as `torch.set_num_threads`; may be None.
    """

    def __init__(self, workspaces: Workspaces, clock: Clock, begin: Begin | None = None, name: str = "device") -> None:
        self._workspaces = workspaces
        self._clock = clock
        self._begin = begin
        self._name = name
        self._jobs: SimpleQueue[tuple[Work, Ended, asyncio.AbstractEventLoop] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, work: Work, ended: Ended) -> None:
        """Hands it to the thread, which the first batch starts."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((work, ended, asyncio.get_running_loop()))

    def close(self) -> None:
        """Ends the thread after what it runs."""
        self._jobs.put(None)

    def _serve(self) -> None:
        self._begun()
        while (job := self._jobs.get()) is not None:
            work, ended, loop = job
            outcome = BatchRun(work, self._workspaces, self._clock).run()
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(ended, work, outcome)
            del job, work, ended, loop, outcome  # or payloads and results would live until the next batch

    def _begun(self) -> None:
        try:
            if self._begin is not None:
                self._begin()
        except Exception:  # a device without its settings is slow; without its thread it would hang
            LOG.exception("the thread of device %r could not be set up", self._name)
