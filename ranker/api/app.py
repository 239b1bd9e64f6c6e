"""Assembles the HTTP application: every path, the document that describes them, the last resort for errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ranker.admission import Admission
from ranker.answers import Service, Workers
from ranker.api.actions import ActionCalls
from ranker.api.batch import BatchCalls
from ranker.api.endpoint import AnyPathRoute, Endpoint
from ranker.api.events import EventCalls
from ranker.api.gate import Gate
from ranker.api.health import HealthCalls
from ranker.api.limits import Limits
from ranker.api.memory import MemoryCalls
from ranker.api.metrics import registry_of
from ranker.api.openapi import describe
from ranker.api.problems import reply_for
from ranker.api.rank import RankCalls
from ranker.api.tally import Tally
from ranker.api.turns import Turns
from ranker.api.users import UserCalls
from ranker.api.wire import Handler
from ranker.clock import Clock
from ranker.inference.memory_report import MemorySource

UNKNOWN_PATH = "unknown"


class NextActionApp(FastAPI):
    """FastAPI with our routes' description merged into the document of whatever else is added.

    There is no `/docs`: FastAPI's page loads scripts from another host, which neither works offline nor
    belongs into a service's page.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(title="nextaction", docs_url=None, redoc_url=None, redirect_slashes=False)
        self._limits = limits
        self.gate: Gate | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call, unless the gate refuses it."""
        if self.gate is not None and self.gate.refuses(scope):
            await self.gate.refuse(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once."""
        if not self.openapi_schema:
            self.openapi_schema = describe(super().openapi(), self._limits)
        return self.openapi_schema


def create_app(
    service: Service,
    limits: Limits,
    clock: Clock,
    memory: Sequence[MemorySource] = (),
    admission: Admission | None = None,
    classes: Collection[str] | None = None,
    workers: Workers | None = None,
) -> FastAPI:
    """The application over a running service; starts nothing and stops nothing.

    Args:
        memory: pools that `/v1/memory` reports; a list may change while the application runs.
        admission: who is let in to be ranked; by default with the usual budgets.
        classes: the policy's safety classes, for entries of the catalogue; by default any may be put.
        workers: where several processes answer; this application is then the keeper's.
    """
    tally = Tally()
    app = NextActionApp(limits)
    admission = admission or Admission(clock)
    app.gate = Gate(admission, tally, limits)
    health = HealthCalls(service, limits, registry_of(tally, service, workers), workers)
    actions = ActionCalls(service, limits, classes)
    table = _table(service, limits, tally, MemoryCalls(service, memory), admission, actions, health)
    for path, handlers in table.items():
        endpoint = Endpoint(path.replace(":path", ""), handlers, tally, clock, limits)
        app.router.routes.append(AnyPathRoute(path, endpoint))
    _catch_the_rest(app, limits, tally)
    return app


def _table(
    service: Service,
    limits: Limits,
    tally: Tally,
    memory: MemoryCalls,
    admission: Admission,
    actions: ActionCalls,
    health: HealthCalls,
) -> dict[str, Mapping[str, Handler]]:
    turns = Turns()
    rank = RankCalls(service, limits, tally, turns, admission)
    batch = BatchCalls(service, limits, tally, turns)
    events = EventCalls(service, limits, tally)
    users = UserCalls(service)
    return {
        "/v1/rank": {"POST": rank.post},
        "/v1/rank/batch": {"POST": batch.post},
        "/v1/events": {"POST": events.post},
        "/v1/actions": {"GET": actions.get_all, "PUT": actions.put_all},
        "/v1/actions/{action:path}": {"GET": actions.get, "PUT": actions.put, "DELETE": actions.delete},
        "/v1/users/{user:path}": {"GET": users.get, "DELETE": users.delete},
        "/v1/models": {"GET": health.models},
        "/v1/memory": {"GET": memory.get},
        "/healthz": {"GET": health.healthz},
        "/readyz": {"GET": health.readyz},
        "/metrics": {"GET": health.metrics},
    }


def _catch_the_rest(app: FastAPI, limits: Limits, tally: Tally) -> None:
    async def render(_request: Request, error: Exception) -> Response:
        reply = reply_for(error, limits)
        tally.requests[UNKNOWN_PATH, reply.status] += 1
        headers = {name.decode(): value.decode() for name, value in reply.headers}
        return Response(reply.body, reply.status, headers, reply.media.decode())

    app.add_exception_handler(HTTPException, render)
    app.add_exception_handler(Exception, render)
