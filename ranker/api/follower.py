"""The HTTP application of a worker: rankings are its own, everything else is the keeper's."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranker.admission import Admission
from ranker.answers import Ranks
from ranker.api.batch import BatchCalls
from ranker.api.codec import encode
from ranker.api.endpoint import Endpoint
from ranker.api.gate import Gate
from ranker.api.health import HealthAnswer
from ranker.api.limits import Limits
from ranker.api.rank import RankCalls
from ranker.api.tally import Tally
from ranker.api.turns import Turns
from ranker.api.wire import Call, Handler, Reply
from ranker.clock import Clock


def follower_app(
    ranks: Ranks, limits: Limits, clock: Clock, admission: Admission, tally: Tally, keeper: ASGIApp
) -> ASGIApp:
    """Answers what needs no change of state here.

    Args:
        tally: counts what is answered here; the keeper counts what it answers.
        keeper: gets all the rest.
    """
    turns = Turns()
    own: dict[str, Mapping[str, Handler]] = {
        "/v1/rank": {"POST": RankCalls(ranks, limits, tally, turns, admission).post},
        "/v1/rank/batch": {"POST": BatchCalls(ranks, limits, tally, turns).post},
        "/healthz": {"GET": _healthz},
    }
    endpoints = {path: Endpoint(path, handlers, tally, clock, limits) for path, handlers in own.items()}
    gate = Gate(admission, tally, limits)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if gate.refuses(scope):
            await gate.refuse(scope, receive, send)
            return
        await endpoints.get(scope["path"], keeper)(scope, receive, send)

    return app


def named(app: ASGIApp, worker: int) -> ASGIApp:
    """The application with the worker's number in each answer, as the header `x-worker`."""
    header = (b"x-worker", b"%d" % worker)

    async def with_name(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], header]}
            await send(message)

        await app(scope, receive, send_named)

    return with_name


async def _healthz(_call: Call) -> Reply:
    return Reply(200, encode(HealthAnswer()))
