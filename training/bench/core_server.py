"""A process that serves a sleeping model over HTTP: `python -m training.bench.core_server KIND …`, for benchmarks.

It prints its port as one JSON line, and stops on SIGTERM or when its standard input ends. A request without a body gets
the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ranker.inference.engine import Engine, EngineError, Rejected, open_engine
from ranker.inference.pool import MemoryPool
from ranker.inference.scheduler import SchedulerConfig
from training.bench.floor import Floor
from training.bench.http_front import Asked, Call, Front
from training.bench.sleeping import Sleeping

MODEL_KEY = "sleeping@1"
SWITCH_S = 0.0005
"""So that neither thread waits for the other's 5 ms."""


class Server(Protocol):
    """Something that answers calls."""

    def serve(self, asked: Asked, call: Call) -> None:
        """Replies, now or later."""
        ...

    def metrics(self) -> dict[str, Any]:
        """Its figures."""
        ...

    async def close(self) -> None:
        """Takes no more."""
        ...


class EngineServer:
    """The engine behind the front: a call is a future, a client that goes cancels it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def serve(self, asked: Asked, call: Call) -> None:
        """Offers a request."""
        try:
            request = self._engine.request(MODEL_KEY, asked.x, priority=asked.priority, budget_ms=asked.budget_ms)
        except Rejected as error:
            return call.reply(503, _reason(error))
        future = self._engine.offer(request, asked.x)
        call.leave = future.cancel
        future.add_done_callback(_replies(call))
        return None

    def metrics(self) -> dict[str, Any]:
        """The engine's."""
        return self._engine.metrics()

    async def close(self) -> None:
        """Drains."""
        await self._engine.close()


def _replies(call: Call) -> Callable[[asyncio.Future[Any]], None]:
    def reply(future: asyncio.Future[Any]) -> None:
        call.leave = None
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            call.reply(200, b'{"y":%f}' % future.result())
        elif isinstance(error, Rejected):
            call.reply(503, _reason(error))
        else:
            assert isinstance(error, EngineError), error
            call.reply(500, b"{}")

    return reply


def _reason(error: Rejected) -> bytes:
    return json.dumps({"reason": error.reason, "retry_after_ms": error.retry_after_ms}).encode()


async def _engine(options: Namespace, model: Sleeping) -> EngineServer:
    config = SchedulerConfig(max_batch_tokens=options.most, max_batch_requests=options.most)
    engine = open_engine(config, MemoryPool(1 << 20), workspace_bytes=4096)
    await engine.load(MODEL_KEY, model)
    return EngineServer(engine)


async def _serve(options: Namespace) -> None:
    log = options.model_log.open("ab", buffering=0) if options.model_log is not None else None
    model = Sleeping(options.sleep_ms, log=log)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    if options.until_stdin_ends:
        loop.add_reader(sys.stdin.fileno(), stop.set)
    server: Server
    batching: asyncio.Task[None] | None = None
    if options.kind == "floor":
        floor = Floor(model, most=options.most, window_ms=options.window_ms)
        server, batching = floor, loop.create_task(floor.run())
    else:
        server = await _engine(options, model)
    serve = _with_figures(server, model)
    listener = await loop.create_server(lambda: Front(serve), "127.0.0.1", options.port, backlog=4096)
    print(json.dumps({"port": listener.sockets[0].getsockname()[1]}), flush=True)
    gc.collect()
    gc.freeze()
    await stop.wait()
    listener.close()
    await server.close()
    if batching is not None:
        batching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await batching


def _with_figures(server: Server, model: Sleeping) -> Callable[[Asked, Call], None]:
    def serve(asked: Asked, call: Call) -> None:
        if asked.x:
            return server.serve(asked, call)
        slept_ms = model.took_s * 1000.0 / max(1, len(model.batches))
        figures = {**server.metrics(), "executed": sum(model.batches), "model_ms": slept_ms}
        return call.reply(200, json.dumps(figures).encode())

    return serve


def main() -> None:
    """Serves until told to stop."""
    parser = ArgumentParser()
    parser.add_argument("kind", choices=("engine", "floor"))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--sleep-ms", type=float, default=1.0)
    parser.add_argument("--window-ms", type=float, default=0.0, help="of the floor")
    parser.add_argument("--most", type=int, default=16, help="requests of a batch")
    parser.add_argument("--model-log", type=Path, help="one record a batch is appended to it")
    parser.add_argument("--until-stdin-ends", action="store_true")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_S)
    import uvloop

    uvloop.run(_serve(options))


if __name__ == "__main__":
    main()
