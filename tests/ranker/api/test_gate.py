"""The gate: while too many wait, a ranking is refused before routing, and its body is not read."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.types import ASGIApp, Message

from ranker.admission import Admission
from ranker.api.app import create_app
from ranker.api.follower import follower_app
from ranker.api.limits import Limits
from ranker.api.tally import Tally
from ranker.clock import ManualClock
from ranker.types import RankRequest
from tests.ranker.api.fake_service import FakeService


async def nothing_is_read() -> Message:
    raise AssertionError("the body was read")


async def elsewhere(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})


async def asked(app: ASGIApp, method: str, path: str) -> tuple[int, dict[bytes, bytes]]:
    sent: list[Message] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"x-request-id", b"mine")], "http_version": "1.1", "scheme": "http",
        "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    await app(scope, nothing_is_read, send)
    return sent[0]["status"], dict(sent[0]["headers"])


def apps(admission: Admission) -> dict[str, ASGIApp]:
    clock, service = ManualClock(), FakeService()
    return {
        "keeper": create_app(service, Limits(), clock, admission=admission),
        "worker": follower_app(service, Limits(), clock, admission, Tally(), elsewhere),
    }


@pytest.mark.parametrize("name", ["keeper", "worker"])
def test_rankings_are_refused_unread_and_everything_else_goes_on(name: str) -> None:
    async def work() -> None:
        admission = Admission(ManualClock(), at_once=1, most_waiting=1)
        app = apps(admission)[name]
        request = msgspec.convert({"user": "u", "context": {}}, RankRequest)
        await admission.enter(request, 0.0)
        waiting = asyncio.create_task(admission.enter(request, 0.0))
        await asyncio.sleep(0)
        status, headers = await asked(app, "POST", "/v1/rank")
        assert (status, headers[b"retry-after"], headers[b"x-request-id"]) == (503, b"1", b"mine")
        assert headers[b"content-type"] == b"application/problem+json"
        assert admission.refused == 1
        assert (await asked(app, "GET", "/healthz"))[0] == 200
        assert (await asked(app, "GET", "/v1/rank"))[0] == 405
        admission.leave()
        await waiting
        admission.leave()
        status, _ = await asked(app, "POST", "/v1/rank")
        assert status == 500, "who is let in has its body read, which fails here"

    asyncio.run(work())
