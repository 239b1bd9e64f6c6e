"""Who waits for which request: each future is settled exactly once, and nobody hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from ranker.inference.model import Payload, Result
from ranker.inference.request import Request


class Ticket:
    """A caller's place: from the offer until its future is settled.

    Args:
        request: as it was last offered; its budget may grow when it goes back to the queue.
    """

    __slots__ = ("future", "left", "payload", "request", "returns")

    def __init__(self, request: Request, payload: Payload, future: asyncio.Future[Result]) -> None:
        self.request = request
        self.payload = payload
        self.future = future
        self.returns = 0
        self.left = False


class Tickets:
    """The open tickets by request id; belongs to the event loop.

    Args:
        on_left: told of an open ticket whose caller has cancelled; whoever is told must `close` it, now or later.
        on_settled: told the model key of each ticket that is settled or closed.
    """

    def __init__(self, on_left: Callable[[Ticket], None], on_settled: Callable[[str], None]) -> None:
        self._open: dict[str, Ticket] = {}
        self._on_left = on_left
        self._on_settled = on_settled

    def __len__(self) -> int:
        """Callers that wait."""
        return len(self._open)

    def __contains__(self, request_id: object) -> bool:
        """Whether somebody waits under this id."""
        return request_id in self._open

    def __iter__(self) -> Iterator[Ticket]:
        return iter(tuple(self._open.values()))

    def open(self, ticket: Ticket) -> None:
        """Remembers a caller."""
        self._open[ticket.request.request_id] = ticket
        ticket.future.add_done_callback(lambda future: self._left(ticket) if future.cancelled() else None)

    def of(self, request_id: str) -> Ticket:
        """The ticket of a request that the scheduler holds."""
        return self._open[request_id]

    def answer(self, ticket: Ticket, result: Result) -> None:
        """Gives the result to whoever still waits."""
        self._close(ticket)
        if not ticket.future.done():
            ticket.future.set_result(result)

    def fail(self, ticket: Ticket, error: Exception) -> None:
        """Gives an error to whoever still waits."""
        self._close(ticket)
        if not ticket.future.done():
            ticket.future.set_exception(error)

    def close(self, ticket: Ticket) -> None:
        """Forgets one whose caller has gone."""
        self._close(ticket)

    def _close(self, ticket: Ticket) -> None:
        if self._open.get(ticket.request.request_id) is ticket:
            del self._open[ticket.request.request_id]
            self._on_settled(ticket.request.model_key)

    def _left(self, ticket: Ticket) -> None:
        if self._open.get(ticket.request.request_id) is ticket:
            ticket.left = True
            self._on_left(ticket)
