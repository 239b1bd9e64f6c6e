"""A service in memory, and a way to ask the application over it without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from features.catalogue import ActionSpec
from features.errors import EventError
from features.events import decode_event
from ranker.answers import AnswerItem, EventAnswer, RankAnswer
from ranker.api.app import create_app
from ranker.api.limits import Limits
from ranker.clock import ManualClock
from ranker.errors import NotFound
from ranker.inference.memory_report import MemorySource
from ranker.types import RankRequest

RANK = {"user": "u1", "context": {"surface": "chat"}}
URL = "http://service"


@dataclass
class RankCall:
    """What the route handed to `rank`."""

    request: RankRequest
    body: bytes
    caller: str
    explain: bool
    arrived_ms: float


@dataclass
class FakeService:
    """Remembers what it was given; raises `error` from every call that has one."""

    catalogue: dict[str, ActionSpec] = field(default_factory=lambda: {"summarize": ActionSpec(title="Summarise")})
    users: dict[str, dict[str, Any]] = field(default_factory=lambda: {"u1": {"locale": "en"}})
    missing: dict[str, str] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)
    error: Exception | None = None
    rank_calls: list[RankCall] = field(default_factory=list)
    event_ids: list[str] = field(default_factory=list)
    drops: dict[str, int] = field(default_factory=dict)

    async def rank(
        self, request: RankRequest, body: bytes, *, caller: str, explain: bool, arrived_ms: float
    ) -> RankAnswer:
        self._fail()
        self.rank_calls.append(RankCall(request, body, caller, explain, arrived_ms))
        items = [
            AnswerItem(action, None, position, 1.0 / position, 1.0, ["prior"] if explain else None)
            for position, action in enumerate(list(self.catalogue)[: request.k], start=1)
        ]
        return RankAnswer("r1", items, "live", {"schema": "s"}, self.degraded, {"light": 0.3, "total": 120.0})

    async def rank_offline(self, request: RankRequest, *, explain: bool) -> RankAnswer:
        answer = await self.rank(request, b"", caller="", explain=explain, arrived_ms=0.0)
        self.rank_calls.pop()
        return msgspec.structs.replace(answer, id=request.id or "r1", traffic="replay")

    async def ingest(self, events: Sequence[bytes]) -> list[EventAnswer]:
        self._fail()
        return [self._take(event) for event in events]

    async def put_actions(self, specs: Mapping[str, ActionSpec], *, replace_all: bool = False) -> int:
        self._fail()
        self.catalogue = {**({} if replace_all else self.catalogue), **specs}
        return len(specs)

    async def delete_action(self, action: str) -> None:
        self._fail()
        if self.catalogue.pop(action, None) is None:
            raise NotFound(f"there is no action {action!r}")

    def action(self, action: str) -> ActionSpec:
        self._fail()
        if action not in self.catalogue:
            raise NotFound(f"there is no action {action!r}")
        return self.catalogue[action]

    def actions(self) -> Mapping[str, ActionSpec]:
        self._fail()
        return self.catalogue

    async def user(self, user: str) -> dict[str, Any]:
        self._fail()
        if user not in self.users:
            raise NotFound(f"nothing is held about {user!r}")
        return self.users[user]

    async def forget(self, user: str) -> None:
        self._fail()
        self.users.pop(user, None)

    def models(self) -> dict[str, Any]:
        self._fail()
        return {"active": "7", "versions": [], "serving": {"light": "7"}}

    def not_ready(self) -> dict[str, str]:
        return self.missing

    def status(self) -> dict[str, Any]:
        store = {"reads": 5, "circuit": "open"}
        return {"log_end": 12, "catalogue": len(self.catalogue), "store": store, "drops": self.drops}

    def reset(self) -> None:
        """As new."""
        vars(self).update(vars(type(self)()))

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error

    def _take(self, line: bytes) -> EventAnswer:
        try:
            event = decode_event(line)
        except EventError as error:
            return EventAnswer(None, "refused", error.reason, error.detail)
        if event.id in self.event_ids:
            return EventAnswer(event.id, "duplicate")
        self.event_ids.append(event.id)
        return EventAnswer(event.id, "accepted")


class App:
    """The application over a fake service, asked one request at a time; metrics add up."""

    def __init__(
        self,
        service: FakeService | None = None,
        limits: Limits | None = None,
        memory: Sequence[MemorySource] = (),
        classes: Collection[str] | None = None,
    ) -> None:
        self.service = service or FakeService()
        self.clock = ManualClock(elapsed_ms=1000.0)
        self.asgi = create_app(self.service, limits or Limits(), self.clock, memory, classes=classes)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Sends bytes as they are, anything else as JSON; header names have `_` for `-`."""
        content = body if body is None or isinstance(body, bytes | AsyncIterator) else msgspec.json.encode(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return asyncio.run(self._ask(method, path, content, named))

    async def _ask(self, method: str, path: str, content: Any, headers: dict[str, str]) -> httpx.Response:
        # Errors that leave the application fail the test: they would be a broken connection.
        transport = httpx.ASGITransport(app=self.asgi)
        async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
            return await client.request(method, path, content=content, headers=headers)

    def rank(self, **fields: Any) -> httpx.Response:
        """A good rank request with some fields replaced or added."""
        return self.ask("POST", "/v1/rank", {**RANK, **fields})
