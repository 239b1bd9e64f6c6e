"""What `nextaction bench` measures against: an echo of the same server, and what the process has used."""

from __future__ import annotations

import gc
import resource
import sys
import time
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from ranker.answers import Service
from ranker.api.codec import encode
from ranker.api.endpoint import AnyPathRoute, Endpoint
from ranker.api.limits import Limits
from ranker.api.reading import read_body
from ranker.api.tally import Tally
from ranker.api.wire import Call, Reply
from ranker.clock import Clock

_STATM = Path("/proc/self/statm")


class BenchCalls:
    """Routes that no service has unless it is measured."""

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service = service
        self._limits = limits

    async def echo(self, call: Call) -> Reply:
        """The body, read like that of `/v1/rank`, and nothing done with it."""
        return Reply(200, await read_body(call, self._limits.rank_bytes, self._limits))

    async def usage(self, _call: Call) -> Reply:
        """CPU seconds and resident bytes of this process, and how far the log is applied."""
        status: dict[str, Any] = self._service.status()
        return Reply(
            200,
            encode(
                {
                    "cpu_s": time.process_time(),
                    "rss_bytes": resident_bytes(),
                    "collections": [generation["collections"] for generation in gc.get_stats()],
                    "log_end": status["log"]["end"],
                    "applied": status["applier"]["applied"],
                }
            ),
        )


def add_bench_routes(app: FastAPI, service: Service, limits: Limits, clock: Clock) -> None:
    """Adds `/echo` and `/usage` to an application."""
    calls, tally = BenchCalls(service, limits), Tally()
    app.router.routes.append(AnyPathRoute("/echo", Endpoint("/echo", {"POST": calls.echo}, tally, clock, limits)))
    app.router.routes.append(AnyPathRoute("/usage", Endpoint("/usage", {"GET": calls.usage}, tally, clock, limits)))


def resident_bytes() -> int:
    """Resident memory now; where the system does not say, the most it has been."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
