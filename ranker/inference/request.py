"""What is asked of a device, what is dispatched to it, and what is turned away."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

Reason = Literal["queue_full", "deadline", "too_large", "duplicate", "invalid"]

PRIORITIES = ("premium", "normal", "shadow")
DEFAULT_BUDGETS_MS = {"premium": 60.0, "normal": 100.0, "shadow": math.inf}


class InvalidRequest(ValueError):
    """JSON that is no request; the message names the field and what is wrong with it."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One unit of work for a model.

    Args:
        model_key: `model@version`; a batch holds one of them.
        token_budget: the worst case in tokens, a whole number above 0.
        arrival_ms, deadline_ms: instants of the core's monotonic clock; a deadline of infinity is none.
        priority: premium, normal or shadow.
    """

    request_id: str
    model_key: str
    token_budget: int
    arrival_ms: float
    deadline_ms: float
    priority: str = "normal"

    @staticmethod
    def from_json(raw: bytes | str | Mapping[str, object]) -> Request:
        """Decodes camelCase JSON; without `deadlineMs` the priority's default budget counts from the arrival.

        Raises InvalidRequest, which names the field.
        """
        try:
            wire = msgspec.convert(raw, _Wire) if isinstance(raw, Mapping) else msgspec.json.decode(raw, type=_Wire)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"not a request: {error}") from error
        request = wire.request()
        if problem := fault(request):
            raise InvalidRequest(problem)
        return request


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """A request that will not run.

    Args:
        retry_after_ms: how long the same request, with a fresh budget, should wait; 0 where waiting changes nothing.
        detail: a sentence with the field and value, for `invalid` and `too_large`.
    """

    request_id: str
    reason: Reason
    retry_after_ms: float
    detail: str = ""


class Batch(msgspec.Struct, frozen=True):
    """What the device runs next: requests of one model, `tokens` the sum of their budgets."""

    batch_id: int
    model_key: str
    requests: tuple[Request, ...]
    tokens: int


class _Wire(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    request_id: str
    model_key: str
    token_budget: int
    arrival_ms: float
    deadline_ms: float | None = None
    priority: Literal["premium", "normal", "shadow"] = "normal"

    def request(self) -> Request:
        # `None` alone means "not given": a deadline of 0 is a deadline.
        deadline = self.arrival_ms + DEFAULT_BUDGETS_MS[self.priority] if self.deadline_ms is None else self.deadline_ms
        return Request(self.request_id, self.model_key, self.token_budget, self.arrival_ms, deadline, self.priority)


def fault(request: Request) -> str | None:
    """A sentence that names the first field that cannot be, or None; whatever the fields hold, it does not raise."""
    try:
        tokens, arrival, deadline = request.token_budget, request.arrival_ms, request.deadline_ms
        if (  # most are as they should be: one expression for the usual types
            type(tokens) is int
            and type(arrival) is type(deadline) is float
            and type(request.request_id) is type(request.model_key) is str
            and tokens > 0
            and -math.inf < arrival < math.inf
            and arrival <= deadline
            and request.request_id
            and request.model_key
            and request.priority in PRIORITIES
        ):
            return None
        if type(request.request_id) is not str or not request.request_id:
            return f"request_id is {request.request_id!r}, not a name"
        if type(request.model_key) is not str or not request.model_key:
            return f"model_key is {request.model_key!r}, not a name"
        if not tokens > 0 or int(tokens) != tokens or isinstance(tokens, bool):
            return f"token_budget is {tokens!r}, not a whole number above 0"
        if not math.isfinite(arrival):
            return f"arrival_ms is {arrival!r}, not an instant"
        if not deadline >= arrival:
            return f"deadline_ms is {deadline!r}, not at or after arrival_ms {arrival!r}"
        if request.priority not in PRIORITIES:
            return f"priority is {request.priority!r}, not one of {', '.join(PRIORITIES)}"
    except (TypeError, ValueError, OverflowError) as error:
        return f"a field of request {request.request_id!r} has the wrong type: {error}"
    return None
