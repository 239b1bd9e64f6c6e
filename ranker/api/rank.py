"""`POST /v1/rank`: parses, calls, renders."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from features.events import Context, writable
from ranker.admission import Admission
from ranker.answers import Ranks
from ranker.api.codec import decode, encode, fits, misfit, shown
from ranker.api.limits import MAX_DEPTH, Limits
from ranker.api.problems import InvalidField
from ranker.api.reading import caller_of, read_body, switches
from ranker.api.tally import Tally
from ranker.api.turns import Turns
from ranker.api.wire import Call, Reply
from ranker.types import RankRequest


class ContextBody(Context, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The situation that actions are ranked for; every field may be absent, others are refused.

    `time` is accepted and kept in the log; what is measured is measured from the service's clock.
    What the app wants to say beyond these goes into `fields`.
    """


class RankBody(RankRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/rank`: a RankRequest whose context refuses unknown fields."""

    context: ContextBody


_decoder = msgspec.json.Decoder(RankBody)


class RankCalls:
    """The hot route."""

    def __init__(self, service: Ranks, limits: Limits, tally: Tally, turns: Turns, admission: Admission) -> None:
        self._service = service
        self._limits = limits
        self._tally = tally
        self._turns = turns
        self._admission = admission

    async def post(self, call: Call) -> Reply:
        """Ranks; `?explain=true` adds reasons and verdicts."""
        explain = switches(call, "explain").get("explain", False)
        caller = caller_of(call, self._limits)
        body = await read_body(call, self._limits.rank_bytes, self._limits)
        request = parse(body)
        self._turns.begin()
        try:
            await self._admission.enter(request, call.arrived_ms)
            try:
                answer = await self._service.rank(
                    request, body, caller=caller, explain=explain, arrived_ms=call.arrived_ms
                )
            finally:
                self._admission.leave()
        finally:
            self._turns.end()
        self._tally.ranked(answer)
        return Reply(200, encode(answer))


def parse(body: bytes, prefix: str = "$") -> RankRequest:
    """A request within all printed limits.

    Args:
        prefix: stands for the body's root in the paths of errors.

    Raises:
        Malformed, InvalidField: naming the field.
    """
    request = decode(_decoder, body, prefix)
    for path, fields in _free_fields(request):
        if not fits(fields, MAX_DEPTH):
            raise misfit(fields, MAX_DEPTH, prefix + path)
    for path, time in _times(request.context):
        if time is not None and not writable(time):
            raise InvalidField(
                f"{prefix}{path}: {time} has no UTC time of the years 1 to 9999", prefix + path, shown(str(time))
            )
    return request


def _times(context: Context) -> Iterator[tuple[str, datetime | None]]:
    yield ".context.time", context.time
    for row, entity in enumerate(context.entities):
        yield f".context.entities[{row}].time", entity.time


def _free_fields(request: RankBody) -> Iterator[tuple[str, dict[str, Any]]]:
    context = request.context
    if context.fields:
        yield ".context.fields", context.fields
    if context.trigger is not None and context.trigger.fields:
        yield ".context.trigger.fields", context.trigger.fields
    for row, entity in enumerate(context.entities):
        if entity.fields:
            yield f".context.entities[{row}].fields", entity.fields
    for row, candidate in enumerate(request.candidates or ()):
        if candidate.fields:
            yield f".candidates[{row}].fields", candidate.fields
