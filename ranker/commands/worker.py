"""A follower's process: `python -m ranker.commands.worker`, started by `nextaction serve` with several workers.

How to start comes as one line on standard input, which stays open for as long as the keeper lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ranker.commands.serve import limit_threads, log_to_stderr, stop_at_the_end_of_stdin
from ranker.workers.start import Start, read_start

if TYPE_CHECKING:
    from ranker.build import Surroundings
    from ranker.workers.follower import Follower

_log = logging.getLogger(__name__)


def main(around: Callable[[], Surroundings] | None = None) -> int:
    """Serves until the keeper says so, or is gone.

    Args:
        around: makes what is around it; None is the machine.
    """
    from ranker.errors import RankerError

    start = read_start(0)
    limit_threads(start.config.threads)
    log_to_stderr()
    from ranker.server import run_on_uvloop

    listener = socket.socket(fileno=start.listener)
    try:
        return run_on_uvloop(_work(start, listener, around))
    except RankerError as error:
        _log.error("worker %d: %s", start.worker, error)
        return 1
    finally:
        listener.close()


async def _work(start: Start, listener: socket.socket, make: Callable[[], Surroundings] | None) -> int:
    from features.errors import StoreError
    from features.redis_store import RedisStore
    from ranker.build import Surroundings
    from ranker.server import stopped_by_signals
    from ranker.workers.endpoint import FEED
    from ranker.workers.follower import build_follower, ready, run_watch

    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.enter_context(stopped_by_signals(stop))
        stop_at_the_end_of_stdin(stop)
        store = RedisStore.connect(start.store, timeout_ms=start.config.store_timeout_ms)
        stack.push_async_callback(store.close)
        around = Surroundings() if make is None else make()
        follower = build_follower(start.worker, start.config, start.policy, store, around)
        following = asyncio.create_task(follower.feed.run(Path(start.folder) / FEED), name="feed")
        stack.callback(following.cancel)
        following.add_done_callback(lambda _task: stop.set())
        if not await ready(follower, following, start.config):
            following.result()
            return 1
        with contextlib.suppress(StoreError):
            await store.ping()  # so that no request has to wait for a connection
        if around.model is None:
            run_watch(follower, stack)
        await _serve(start, listener, stop, follower)
    return 0


async def _serve(start: Start, listener: socket.socket, stop: asyncio.Event, follower: Follower) -> None:
    from ranker.admission import Admission
    from ranker.api.counted import counted
    from ranker.api.follower import follower_app, named
    from ranker.api.forwarding import Forwarding
    from ranker.api.limits import Limits
    from ranker.api.tally import Tally
    from ranker.server import serve
    from ranker.workers.endpoint import FORWARD

    config, tally, clock = start.config, Tally(), follower.ranking.clock
    follower.http = lambda: counted(tally)
    limits = Limits(rank_bytes=config.max_body_bytes)
    forwarding = Forwarding(str(Path(start.folder) / FORWARD), limits)
    admission = Admission(clock, config.budgets_ms.by_priority())
    app = follower_app(follower.ranking, limits, clock, admission, tally, forwarding)
    try:
        await serve(named(app, start.worker), listener, stop)
    finally:
        await forwarding.close()


def leave(status: int) -> None:
    """Ends the process: a thread of it may still wait for the keeper's end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main())
