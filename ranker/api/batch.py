"""`POST /v1/rank/batch`: rank requests line by line, answers line by line, in constant memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from ranker.answers import Ranks
from ranker.api.codec import encode, shown
from ranker.api.limits import Limits
from ranker.api.lines import Line, LineReader
from ranker.api.problems import BodyTimeout, InvalidField, Malformed, reply_for
from ranker.api.rank import parse
from ranker.api.reading import check_encoding, switches
from ranker.api.tally import Tally
from ranker.api.turns import Turns
from ranker.api.wire import Call, Stream
from ranker.types import RankRequest

FLUSH_BYTES = 16 * 1024
"""Answers are sent in pieces of about this size; at once when there is no line to go on with."""

FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
"""Clocks that can be read in every time zone."""


class BatchCalls:
    """Offline jobs over HTTP."""

    def __init__(self, service: Ranks, limits: Limits, tally: Tally, turns: Turns) -> None:
        self._service, self._limits, self._tally, self._turns = service, limits, tally, turns

    async def post(self, call: Call) -> Stream:
        """One line per line that is not blank, in order: an answer, or the problem with it."""
        explain = switches(call, "explain").get("explain", False)
        check_encoding(call)
        async with AsyncExitStack() as stack:
            reader = LineReader(call, self._limits.rank_bytes, self._limits.batch_idle_s)
            await stack.enter_async_context(reader)
            lines = reader.lines()
            # Until there is a line there is no answer yet, and what is wrong gets its own status.
            first = await anext(lines, None)
            if first is None:
                raise Malformed("the body is empty", "$")
            if isinstance(first, BodyTimeout):
                raise first
            return Stream(self._answers(first, lines, reader, explain, stack.pop_all()))
        raise AssertionError("unreachable")

    async def _answers(
        self, first: Line, lines: AsyncIterator[Line], reader: LineReader, explain: bool, opened: AsyncExitStack
    ) -> AsyncGenerator[bytes, None]:
        async with opened:
            ready = bytearray(await self._answer(first, 0, explain))
            row = 1
            while True:
                if len(ready) >= FLUSH_BYTES or (ready and reader.waits):
                    yield bytes(ready)
                    ready.clear()
                reader.check_connected()
                line = await anext(lines, None)
                if line is None:
                    break
                ready += await self._answer(line, row, explain)
                row += 1
            if ready:
                yield bytes(ready)

    async def _answer(self, line: Line, row: int, explain: bool) -> bytes:
        try:
            if isinstance(line, Exception):
                raise line
            request = _parse(line, f"$[{row}]")
            async with self._turns.offline():
                answer = await self._service.rank_offline(request, explain=explain)
        except Exception as error:
            return (reply_for(error, self._limits).body or b"") + b"\n"
        self._tally.rankings[answer.traffic] += 1
        return encode(answer) + b"\n"


def _parse(line: bytes, prefix: str) -> RankRequest:
    request = parse(line, prefix)
    time = request.context.time
    if time is not None and not FIRST <= time < LAST:
        path = f"{prefix}.context.time"
        raise InvalidField(f"{path}: {time} is no clock of the years 1970 to 9999", path, shown(str(time)))
    return request
