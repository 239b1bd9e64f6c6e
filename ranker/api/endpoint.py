"""A path and its methods as one ASGI application: dispatch, errors and counting around a handler."""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ranker.api.limits import Limits
from ranker.api.problems import MethodNotAllowed, reply_for
from ranker.api.reading import Disconnected, reflected
from ranker.api.tally import Tally
from ranker.api.wire import Call, Handler, Reply, Stream, send_reply, send_stream
from ranker.clock import Clock


class Endpoint:
    """Answers one path: no exception leaves it, each answer is counted under the route's template."""

    def __init__(self, route: str, handlers: Mapping[str, Handler], tally: Tally, clock: Clock, limits: Limits) -> None:
        self._route = route
        self._handlers = {**handlers, **({"HEAD": handlers["GET"]} if "GET" in handlers else {})}
        self._tally = tally
        self._clock = clock
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        call = Call(scope, receive, self._clock.monotonic_ms())
        try:
            reply = await self._answer(call)
            if isinstance(reply, Stream):
                await send_stream(send, reply, *reflected(call.headers))
        except Disconnected:
            self._tally.disconnected(self._route)
            return
        if isinstance(reply, Reply):
            await send_reply(send, reply, *reflected(call.headers))
        self._tally.answered(self._route, reply.status, self._clock.monotonic_ms() - call.arrived_ms)

    async def _answer(self, call: Call) -> Reply | Stream:
        try:
            return await self._handler(call.scope["method"])(call)
        except Disconnected:
            raise
        except Exception as error:
            return reply_for(error, self._limits)

    def _handler(self, method: str) -> Handler:
        handler = self._handlers.get(method)
        if handler is None:
            raise MethodNotAllowed(method, ", ".join(sorted(self._handlers)))
        return handler


class AnyPathRoute(Route):
    """A Route whose `{name:path}` also matches line breaks: an id is made of whatever its app likes."""

    def __init__(self, path: str, endpoint: Endpoint) -> None:
        super().__init__(path, endpoint, methods=None, include_in_schema=False)
        self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)
