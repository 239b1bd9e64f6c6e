"""Group durability: one thread syncs for everybody who appended meanwhile.

While one `fdatasync` runs, further appends and waiters gather for the next. A failed sync is final: the
kernel may have dropped the pages, so a later success would prove nothing. The writer then refuses
everything until it is opened again.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from features.errors import LogError, LogUnavailable


@dataclass(frozen=True)
class _Waiter:
    offset: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


class GroupSync:
    """Makes appended lines durable and wakes those who wait for it.

    Args:
        fd: the segment appended to now. From here on this object closes it, and those that follow.
        end: offset after the last line appended; all below it is durable already.
        fdatasync: called on the sync thread only.
        delay_s: lines that nobody waits for are synced after this time.
    """

    def __init__(self, fd: int, end: int, fdatasync: Callable[[int], None], delay_s: float) -> None:
        self.durable = end
        self.error: LogUnavailable | None = None
        self._fdatasync = fdatasync
        self._delay_s = delay_s
        self._changed = threading.Condition()
        self._fd, self._end, self._wanted = fd, end, end
        self._retired: list[int] = []
        self._waiters: list[_Waiter] = []
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="log-sync", daemon=True)
        self._thread.start()

    def appended(self, end: int) -> None:
        """Says that lines up to `end` have been written."""
        with self._changed:
            was_clean = self._end == self.durable
            self._end = end
            if was_clean:
                self._changed.notify()

    def rotated(self, fd: int) -> None:
        """Says that appends go to another segment; the earlier one is synced before anything in this one."""
        with self._changed:
            self._retired.append(self._fd)
            self._fd = fd

    async def wait(self, offset: int) -> None:
        """Returns once everything below `offset` is durable.

        Raises:
            LogUnavailable: the sync failed, or the log was closed before.
            LogError: nothing was appended at `offset - 1` yet.
        """
        with self._changed:
            if offset <= self.durable:
                return
            self._check(offset)
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._waiters.append(_Waiter(offset, loop, future))
            self._wanted = max(self._wanted, offset)
            self._changed.notify()
        await future

    def close(self) -> None:
        """Syncs what is left, ends the thread and closes the segments; `error` says whether it worked."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify()
        self._thread.join()
        for fd in (*self._retired, self._fd):
            os.close(fd)

    def _check(self, offset: int) -> None:
        if self.error is not None:
            raise self.error
        if offset > self._end:
            raise LogError(f"offset {offset} was never appended: the log ends at {self._end}")
        if self._closing:
            raise LogUnavailable("the log is closed")

    def _run(self) -> None:
        while self._await_work():
            try:
                self._sync_round()
            except OSError as error:
                self._fail(LogUnavailable(f"the log cannot be synced: {error.strerror or error}"))
                return

    def _await_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._end > self.durable)
            self._changed.wait_for(lambda: self._closing or self._wanted > self.durable, self._delay_s)
            return self._end > self.durable

    def _sync_round(self) -> None:
        with self._changed:
            retired, fd, end = list(self._retired), self._fd, self._end
        for old in (*retired, fd):
            self._fdatasync(old)
        with self._changed:
            del self._retired[: len(retired)]
            self.durable = end
            served = [waiter for waiter in self._waiters if waiter.offset <= end]
            self._waiters = [waiter for waiter in self._waiters if waiter.offset > end]
        for old in retired:
            os.close(old)
        _wake(served, None)

    def _fail(self, error: LogUnavailable) -> None:
        with self._changed:
            self.error = error
            waiters, self._waiters = self._waiters, []
        _wake(waiters, error)


def _wake(waiters: Sequence[_Waiter], error: LogUnavailable | None) -> None:
    futures: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for waiter in waiters:
        futures.setdefault(waiter.loop, []).append(waiter.future)
    for loop, group in futures.items():
        # A loop that was closed meanwhile has nobody left to wake.
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(_settle, group, error)
            except RuntimeError:
                continue


def _settle(futures: Sequence[asyncio.Future[None]], error: LogUnavailable | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(LogUnavailable(str(error)))
