"""A load in flight and those who wait for it: they come and go one by one, the load belongs to none of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ranker.inference.shard_errors import LoadFailed, ShardError, again
from ranker.inference.shard_key import ShardKey
from ranker.inference.shard_load import Load
from ranker.inference.shard_residence import Resident
from ranker.inference.shard_sink import Kept


@dataclass(eq=False)
class Flight:
    """One load of one key, and its reserved bytes until the load has really ended.

    Args:
        doom: why nobody will get anything from this load any more, though it may still be unwinding.
        settled: set when the load has ended, or has been given up on although it does not end.
    """

    load: Load
    started_s: float
    waiters: set[asyncio.Future[Resident]] = field(default_factory=set)
    doom: ShardError | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Kept] | None = None
    timer: asyncio.Task[None] | None = None

    @property
    def key(self) -> ShardKey:
        """Of the shard."""
        return self.load.claim.key

    @property
    def nbytes(self) -> int:
        """Reserved for the shard."""
        return self.load.claim.nbytes

    @property
    def wanted(self) -> bool:
        """Whether anyone still waits."""
        return any(not waiter.done() for waiter in self.waiters)

    @property
    def abandoned(self) -> bool:
        """Whether its bytes can be had by ending it: nobody waits, and it is not stuck."""
        return not self.wanted and not self.settled.is_set()

    def join(self) -> asyncio.Future[Resident]:
        """One more waiter; his future ends with the shard pinned for him, or with the load's error."""
        assert self.doom is None
        waiter: asyncio.Future[Resident] = asyncio.get_running_loop().create_future()
        self.waiters.add(waiter)
        return waiter

    def give_up(self, reason: ShardError) -> None:
        """Ends the load for this reason; its bytes stay reserved until it has unwound."""
        if self.doom is None:
            self.doom = reason
            assert self.task is not None
            self.task.cancel()
        self.fail(self.doom)

    def fail(self, error: ShardError) -> None:
        """Tells everyone who still waits."""
        for waiter in self._take_waiters():
            waiter.set_exception(again(error))

    def publish(self, resident: Resident) -> None:
        """Hands everyone who still waits his pin, which `resident` already counts."""
        for waiter in self._take_waiters():
            waiter.set_result(resident)

    def pins(self) -> int:
        """How many still wait."""
        return sum(not waiter.done() for waiter in self.waiters)

    def failure(self) -> ShardError | None:
        """Why the ended load gave no shard; one that was given up says that, whatever its unwinding raised."""
        assert self.task is not None
        if self.task.cancelled():
            return self.doom or LoadFailed(f"{self.key}: the load was cancelled by its source or its event loop")
        error = self.task.exception()
        if error is None or self.doom is not None:
            return self.doom
        return error if isinstance(error, ShardError) else LoadFailed(f"{self.key}: {type(error).__name__}: {error}")

    def _take_waiters(self) -> list[asyncio.Future[Resident]]:
        waiting = [waiter for waiter in self.waiters if not waiter.done()]
        self.waiters.clear()
        return waiting
