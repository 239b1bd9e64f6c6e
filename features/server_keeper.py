"""Looks whether an embedded server's guard lives, and starts both again, ever more slowly, when it does not."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from features.errors import StoreUnavailable
from features.store_health import StoreHealth

LOOK_S = 0.25
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
SHORT_LIFE_S = 30.0
"""A server that lived longer is started again at once."""

_log = logging.getLogger(__name__)


class Server(Protocol):
    """What is kept."""

    @property
    def running(self) -> bool:
        """Whether a guard keeps it running."""
        ...

    def restart(self) -> bool:
        """Starts it again, in its own time; False when there was no need. Raises StoreUnavailable."""
        ...


async def keep(server: Server, health: StoreHealth) -> None:
    """Until cancelled; what was lost is filled again by the store's writer, who finds it empty or behind."""
    loop = asyncio.get_running_loop()
    pause_s, started_s = FIRST_PAUSE_S, loop.time()
    while True:
        await asyncio.sleep(LOOK_S)
        if server.running:
            continue
        if loop.time() - started_s > SHORT_LIFE_S:
            pause_s = FIRST_PAUSE_S
        await asyncio.sleep(pause_s)
        pause_s = min(2.0 * pause_s, LONGEST_PAUSE_S)
        await _restart(server, health)
        started_s = loop.time()


async def _restart(server: Server, health: StoreHealth) -> None:
    try:
        if await asyncio.to_thread(server.restart):
            health.restarts += 1
            _log.warning("the embedded store's guard had ended: both were started again")
    except StoreUnavailable as error:
        health.last_error = str(error)
        _log.error("%s", " ".join(str(error).split()))
