"""`/v1/users/{user}`: what is held about a user, and forgetting it."""

from __future__ import annotations

from ranker.answers import Service
from ranker.api.codec import encode
from ranker.api.reading import path_id, switches
from ranker.api.wire import JSON, Call, Reply

_PRIVATE = ((b"cache-control", b"no-store"),)


class UserCalls:
    """A user's rights over HTTP."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def get(self, call: Call) -> Reply:
        """All that is held."""
        switches(call)
        return Reply(200, encode(await self._service.user(path_id(call, "user"))), JSON, _PRIVATE)

    async def delete(self, call: Call) -> Reply:
        """Forgets; durable and in effect when it returns. Forgetting whom nobody knows is no error."""
        switches(call)
        await self._service.forget(path_id(call, "user"))
        return Reply(204, None)
