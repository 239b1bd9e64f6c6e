"""A follower's connection to the keeper: reads the one ordered stream, acknowledges, and hands rankings over."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from features.errors import LogUnavailable
from ranker.clock import Clock
from ranker.workers.errors import FeedError
from ranker.workers.followed import Followed
from ranker.workers.frames import Unframer, framed
from ranker.workers.messages import (
    Acked,
    Append,
    Beat,
    Changed,
    Forgot,
    Hello,
    Hurry,
    Joined,
    Logged,
    Report,
    Said,
    Suspect,
    ToldAny,
    Wrote,
    packed,
    told,
)

READ_BYTES = 1 << 18
LEAST_WAIT_MS, MOST_WAIT_MS = 20.0, 2_000.0
"""How long a ranking waits to be logged: until it is due, within these; the least while nothing is heard anyway."""


@dataclass
class Hooks:
    """Who is told what else comes over the feed.

    Args:
        joined: the follower has all it needs; with the floor of its own writes.
        counts: packed counts, for each report.
    """

    wrote: Callable[[str, int], None]
    forgot: Callable[[str, float], None]
    joined: Callable[[int], None]
    counts: Callable[[], bytes]


@dataclass
class Feed:
    """Follows the keeper; a RankingSink.

    Args:
        followed: gets every message about state.
        clock: its monotonic readings are the keeper's too.
    """

    worker: int
    pid: int
    followed: Followed
    hooks: Hooks
    clock: Clock
    _writer: asyncio.StreamWriter | None = field(default=None, init=False)
    _numbers: count[int] = field(default_factory=count, init=False)
    _appends: dict[int, asyncio.Future[str]] = field(default_factory=dict, init=False)
    _taken: int = field(default=0, init=False)
    _acked: int = field(default=0, init=False)
    _held: deque[tuple[int, frozenset[int]]] = field(default_factory=deque, init=False)

    async def run(self, path: Path) -> None:
        """Follows until the keeper ends it.

        Raises:
            FeedError: it ended, or brought what it may not.
        """
        try:
            reader, self._writer = await asyncio.open_unix_connection(str(path))
            self.followed.hurry, self.followed.doubt = self._hurry, self._doubt
            self._say(Hello(self.worker, self.pid))
            await self._follow(reader)
        except OSError as error:
            raise FeedError(f"the keeper cannot be reached: {error}") from error
        finally:
            self._end()

    async def keep(self, user: str, line: bytes, deadline_ms: float) -> None:
        """Returns once a ranking is in the keeper's log. Raises LogUnavailable."""
        now_ms = self.clock.monotonic_ms()
        left_ms = 0.0 if self.followed.fence.closed else deadline_ms - now_ms
        wait_ms = min(max(left_ms, LEAST_WAIT_MS), MOST_WAIT_MS)
        number = next(self._numbers)
        kept = self._appends[number] = asyncio.get_running_loop().create_future()
        try:
            self._say(Append(number, user, line, now_ms + wait_ms))
            async with asyncio.timeout(wait_ms / 1000.0):
                error = await kept
        except TimeoutError:
            raise LogUnavailable(f"the keeper did not say in {wait_ms:.0f} ms that it is logged") from None
        except FeedError as failure:
            raise LogUnavailable(f"the keeper is gone: {failure}") from failure
        finally:
            del self._appends[number]
            if self._held:  # once the answer has gone out
                asyncio.get_running_loop().call_soon(self._acknowledge)
        if error:
            raise LogUnavailable(error)

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        unframer = Unframer()
        while data := await reader.read(READ_BYTES):
            for body in unframer.feed(data):
                message = told(body)
                await self._take(message)
                if isinstance(message, Changed) and self._appends:
                    self._held.append((self._taken, frozenset(self._appends)))
                self._taken += 1
            self._acknowledge()
        raise FeedError("the keeper has ended the feed")

    def _acknowledge(self) -> None:
        """Says how far it is: not past a change of the catalogue while a list from before it has not been answered."""
        while self._held and self._held[0][1].isdisjoint(self._appends):
            self._held.popleft()
        count = self._held[0][0] if self._held else self._taken
        if count > self._acked:
            self._acked = count
            with contextlib.suppress(FeedError):
                self._say(Acked(count))

    async def _take(self, message: ToldAny) -> None:
        match message:
            case Logged(number, error):
                self._logged(number, error)
            case Wrote(user, end):
                self.hooks.wrote(user, end)
            case Forgot(user, at_s):
                self.hooks.forgot(user, at_s)
            case Joined(floor):
                self.hooks.joined(floor)
            case Beat():
                await self.followed.take(message)
                self._say(Report(self.hooks.counts()))
            case _:
                await self.followed.take(message)

    def _logged(self, number: int, error: str) -> None:
        kept = self._appends.get(number)
        if kept is not None and not kept.done():
            kept.set_result(error)

    def _say(self, message: Said) -> None:
        if self._writer is None:
            raise FeedError("it has ended")
        self._writer.write(framed(packed(message)))

    def _hurry(self) -> None:
        with contextlib.suppress(FeedError):
            self._say(Hurry())

    def _doubt(self) -> None:
        with contextlib.suppress(FeedError):
            self._say(Suspect())

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for kept in self._appends.values():
            if not kept.done():
                kept.set_exception(FeedError("it has ended"))
