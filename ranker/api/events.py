"""`POST /v1/events`: splits the body, calls, renders one answer per event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ranker.answers import EventAnswer, Service
from ranker.api.codec import ABSENT, encode, located, shown
from ranker.api.documents import depth_exceeds, split_documents
from ranker.api.limits import MAX_EVENT_DEPTH, Limits
from ranker.api.reading import media_of, read_body, switches
from ranker.api.tally import Tally
from ranker.api.wire import Call, Reply
from ranker.errors import TooLarge


class EventsAnswer(msgspec.Struct, frozen=True):
    """One result per event, in the order in which they were posted, and how many there are of each."""

    results: list[EventAnswer]
    accepted: int
    duplicate: int
    refused: int


class EventCalls:
    """The route by which everything that happens comes in."""

    def __init__(self, service: Service, limits: Limits, tally: Tally) -> None:
        self._service = service
        self._limits = limits
        self._tally = tally

    async def post(self, call: Call) -> Reply:
        """200 once what was accepted is durable, even if all were refused; each result says so."""
        switches(call)
        body = await read_body(call, self._limits.events_bytes, self._limits)
        events = split_documents(body, media_of(call))
        if len(events) > self._limits.events:
            raise TooLarge(f"{len(events)} events are more than {self._limits.events} in one post", "$")
        results = await self._ingest(events)
        self._tally.ingested(results)
        return Reply(200, encode(answer_of(results)))

    async def _ingest(self, events: Sequence[bytes]) -> list[EventAnswer]:
        # What is too deep never reaches the log: it could be read but not written again.
        deep = [depth_exceeds(event, MAX_EVENT_DEPTH) for event in events]
        usable = [event for event, is_deep in zip(events, deep, strict=True) if not is_deep]
        found = await self._service.ingest(usable) if usable else []
        answers = iter(map(_with_value, found, usable))
        return [_TOO_DEEP if is_deep else next(answers) for is_deep in deep]


_TOO_DEEP = EventAnswer(None, "refused", "invalid", f"nested deeper than {MAX_EVENT_DEPTH} - at `$`")


def _with_value(answer: EventAnswer, event: bytes) -> EventAnswer:
    """A refusal that names a field names its value too."""
    text, named, path = (answer.detail or "").rpartition(" - at `")
    if answer.reason != "invalid" or not named:
        return answer
    path, value = located(event, path.rstrip("`"))
    if value is ABSENT:
        return answer
    return msgspec.structs.replace(answer, detail=f"{text}, got {shown(value)} - at `{path}`")


def answer_of(results: list[EventAnswer]) -> EventsAnswer:
    """The results with their counts."""
    counts = Counter(result.status for result in results)
    return EventsAnswer(results, counts["accepted"], counts["duplicate"], counts["refused"])
