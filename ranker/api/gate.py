"""In front of the application: who cannot be ranked in time is told so before anything is done for him."""

from __future__ import annotations

from typing import Any

from starlette.types import Receive, Scope, Send

from ranker.admission import Admission
from ranker.api.limits import Limits
from ranker.api.problems import reply_for
from ranker.api.reading import reflected
from ranker.api.tally import Tally
from ranker.api.wire import send_reply
from ranker.errors import Overloaded

ROUTE = "/v1/rank"


class Gate:
    """Refuses rankings while there are too many: one look at a number, no routing, and the body is not read."""

    def __init__(self, admission: Admission, tally: Tally, limits: Limits) -> None:
        self._admission = admission
        self._tally = tally
        self._reply = reply_for(Overloaded("more is asked than can be ranked in time"), limits)

    def refuses(self, scope: Scope) -> bool:
        """Whether the call is answered by `refuse` instead of the application."""
        asks = scope["type"] == "http" and scope["path"] == ROUTE and scope["method"] == "POST"
        return asks and self._admission.is_full()

    async def refuse(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """A 503, counted like any other."""
        self._admission.refused += 1
        headers: dict[bytes, Any] = dict(scope["headers"])
        await send_reply(send, self._reply, *reflected(headers))
        self._tally.answered(ROUTE, self._reply.status, 0.0)
