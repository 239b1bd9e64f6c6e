"""Starts the followers' processes, starts again those that end, and ends them all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ranker.workers.start import Start

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
LONG_LIFE_S = 30.0
"""Who lived so long before it ended is started again at once."""

GRACE_S = 12.0
"""So long a follower that was told to end may take for the requests it has; longer than its server gives those."""

COMMAND = (sys.executable, "-m", "ranker.commands.worker")

_log = logging.getLogger(__name__)


@dataclass
class Crew:
    """The followers' processes.

    Args:
        starts: what each is given.
        command: runs one; it inherits the public socket.
        restarts: how many were started in place of one that had ended.
    """

    starts: Sequence[Start]
    command: Sequence[str] = COMMAND
    pauses_s: tuple[float, float] = (FIRST_PAUSE_S, LONGEST_PAUSE_S)
    grace_s: float = GRACE_S
    restarts: int = field(default=0, init=False)
    _running: dict[int, asyncio.subprocess.Process] = field(default_factory=dict, init=False)
    _ending: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _stopping: bool = field(default=False, init=False)

    @property
    def pids(self) -> dict[int, int]:
        """Process ids by worker, of those that run."""
        return {worker: child.pid for worker, child in self._running.items()}

    async def run(self) -> None:
        """Keeps one process for each start, until `stop`."""
        await asyncio.gather(*(self._keep(start) for start in self.starts))

    async def stop(self) -> None:
        """Lets each finish what it has, and returns once all have ended."""
        self._stopping = True
        await asyncio.gather(*(self._end(child) for child in self._running.values()))

    def give_up(self, worker: int, pid: int) -> None:
        """Ends one that has stopped following, unless another is in its place already: it is started anew."""
        child = self._running.get(worker)
        if child is not None and child.pid == pid and not self._stopping:
            task = asyncio.create_task(self._end(child))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _keep(self, start: Start) -> None:
        pause_s = self.pauses_s[0]
        while not self._stopping:
            began_s = asyncio.get_running_loop().time()
            status = await self._live(start)
            if self._stopping:
                return
            if asyncio.get_running_loop().time() - began_s > LONG_LIFE_S:
                pause_s = self.pauses_s[0]
            _log.warning("worker %d has ended with status %s and is started again", start.worker, status)
            await asyncio.sleep(pause_s)
            pause_s = min(2.0 * pause_s, self.pauses_s[1])
            self.restarts += 1

    async def _live(self, start: Start) -> int | str:
        """One life of a worker; how it ended."""
        try:
            child = await asyncio.create_subprocess_exec(
                *self.command,
                str(start.worker),  # for whoever looks at the list of processes
                stdin=asyncio.subprocess.PIPE,  # its end tells the child that we are gone, however we went
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(start.listener,),
                start_new_session=True,  # so that Ctrl-C reaches it through us
            )
        except OSError as error:
            return str(error)
        self._running[start.worker] = child
        if self._stopping:  # it was told so before this one was there
            _signal(child.kill)
        try:
            assert child.stdin is not None
            with contextlib.suppress(ConnectionError):
                child.stdin.write(start.line())
                await child.stdin.drain()
            return await child.wait()
        finally:
            del self._running[start.worker]

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        _signal(child.terminate)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.grace_s):
                await child.wait()
                return
        _log.warning("worker process %d did not end in %g s and is killed", child.pid, self.grace_s)
        _signal(child.kill)
        _signal(lambda: child.send_signal(signal.SIGCONT))
        await child.wait()


def _signal(send: Callable[[], None]) -> None:
    with contextlib.suppress(ProcessLookupError):
        send()
