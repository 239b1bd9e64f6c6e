"""The floor: the least a batching server can do. A queue, a window counted from the oldest request, one thread."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from training.bench.http_front import Asked, Call
from training.bench.sleeping import Sleeping

Waiting = tuple[float, Asked, Call]


class Floor:
    """First come, first served, without bound and without deadlines.

    Args:
        window_ms: how long a batch that is not full waits for more.
    """

    def __init__(self, model: Sleeping, *, most: int, window_ms: float) -> None:
        self._model = model
        self._most = most
        self._window_s = window_ms / 1000.0
        self._queue: deque[Waiting] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1)

    def serve(self, asked: Asked, call: Call) -> None:
        """Queues a request."""
        self._queue.append((time.monotonic(), asked, call))
        self._arrived.set()

    async def run(self) -> None:
        """Batches, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            await self._fill()
            batch = [self._queue.popleft() for _ in range(min(self._most, len(self._queue)))]
            sums = await loop.run_in_executor(self._thread, self._model.compute, [asked.x for _, asked, _ in batch])
            for (_, _, call), total in zip(batch, sums, strict=True):
                call.reply(200, b'{"y":%f}' % total)

    def metrics(self) -> dict[str, Any]:
        """It counts nothing of its own."""
        return {}

    async def close(self) -> None:
        """Nothing is drained."""
        self._thread.shutdown(wait=False)

    async def _fill(self) -> None:
        end = self._queue[0][0] + self._window_s
        while len(self._queue) < self._most and (left := end - time.monotonic()) > 0:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), left)
            except TimeoutError:
                return
