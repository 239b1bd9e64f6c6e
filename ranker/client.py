"""A small typed client of the service.

ClientError
├── ApiError      the service answered with a problem
├── Unreachable   it did not answer: refused, reset, or not in time
└── NotReady      it did not become ready in time; names what was missing

>>> from features.events import Context, Entity
>>> from ranker.client import Client
>>> from ranker.types import RankRequest
>>> client = Client(url)
>>> client.wait_ready()
>>> context = Context(surface="chat", text="look", entities=[Entity(id="42", type="image")])
>>> answer = client.rank(RankRequest(user="u1", context=context))
>>> [result.status for result in client.seen("u1", answer)]
['accepted']
>>> client.accept("u1", answer, answer.items[0]).status
'accepted'
>>> client.close()
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from features.catalogue import ActionSpec
from features.events import Event, FeedbackEvent, encode_event, from_seconds
from ranker.answers import AnswerItem, EventAnswer, RankAnswer
from ranker.clock import Clock, SystemClock
from ranker.errors import RankerError
from ranker.inference.memory_report import MemoryReport
from ranker.types import RankRequest

EVENTS_PER_POST = 1000
BATCH_POST_BYTES = 64 * 1024
Fields = Mapping[str, Any]
T = TypeVar("T")
JSON = "application/json"
NDJSON = "application/x-ndjson"


class ClientError(RankerError):
    """Root of what the client raises."""


class ApiError(ClientError):
    """The service answered with a problem (RFC 9457).

    Args:
        status: the HTTP status.
        problem: the answer's body; `type`, `detail` and mostly `field`.
    """

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(f"{status}: {problem.get('detail') or problem.get('title')}")
        self.status = status
        self.problem = problem


class Unreachable(ClientError):
    """The service did not answer."""


class NotReady(ClientError):
    """The service did not become ready in time."""


class _EventResults(msgspec.Struct):
    results: list[EventAnswer]


class _Actions(msgspec.Struct):
    actions: dict[str, ActionSpec]


class _Put(msgspec.Struct):
    put: int


class Client:
    """One connection pool to one service; a context manager.

    Args:
        base_url: such as `http://127.0.0.1:8080`. Proxies of the environment are not used.
        timeout_s: of each call.
        caller: sent as `X-Caller`; request ids are scoped to it.
        new_id: makes the ids of feedback events.
        sleep: waits between two looks at `/readyz`.
    """

    def __init__(
        self,
        base_url: str,
        timeout_s: float = 5.0,
        *,
        caller: str = "",
        clock: Clock | None = None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        headers = {"x-caller": caller} if caller else {}
        self._http = httpx.Client(base_url=base_url, timeout=timeout_s, headers=headers, trust_env=False)
        self._clock = clock or SystemClock()
        self._new_id = new_id
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def rank(self, request: RankRequest | Fields, *, explain: bool = False) -> RankAnswer:
        """What to offer next."""
        path = "/v1/rank?explain=true" if explain else "/v1/rank"
        return self._ask(RankAnswer, "POST", path, msgspec.json.encode(request))

    def rank_batch(self, requests: Iterable[RankRequest | Fields]) -> Iterator[RankAnswer | ApiError]:
        """Ranks for an offline job: takes requests as they are needed, gives an answer or a problem for each, in order.

        Sent in posts of so little that the service never has to wait for us to read before it reads on.
        """
        for body in _bodies(map(msgspec.json.encode, requests), BATCH_POST_BYTES):
            for line in self._send("POST", "/v1/rank/batch", body, NDJSON).rstrip().split(b"\n"):
                yield _batch_answer(line)

    def events(self, events: Sequence[Event | Fields]) -> list[EventAnswer]:
        """Tells what happened, one answer per event in order; many are sent in several posts.

        Raises:
            ApiError: a post was refused as a whole; those before it were taken. Sending all again is
                harmless: the same id counts once.
        """
        answers: list[EventAnswer] = []
        for chunk in _chunks(events, EVENTS_PER_POST):
            body = b"\n".join(map(_event_line, chunk))
            answers += self._ask(_EventResults, "POST", "/v1/events", body, NDJSON).results
        return answers

    def seen(self, user: str, answer: RankAnswer) -> list[EventAnswer]:
        """The user saw the offered actions."""
        return self.events([self._feedback("seen", user, answer, item) for item in answer.items])

    def accept(self, user: str, answer: RankAnswer, item: AnswerItem) -> EventAnswer:
        """The user chose one."""
        return self._tell("accept", user, answer, item)

    def complete(self, user: str, answer: RankAnswer, item: AnswerItem, value: float | None = None) -> EventAnswer:
        """The user carried it through; `value` in the app's own measure."""
        return self._tell("complete", user, answer, item, value)

    def dismiss(self, user: str, answer: RankAnswer, item: AnswerItem) -> EventAnswer:
        """The user waved it away."""
        return self._tell("dismiss", user, answer, item)

    def undo(self, user: str, answer: RankAnswer, item: AnswerItem) -> EventAnswer:
        """The user took it back."""
        return self._tell("undo", user, answer, item)

    def put_action(self, action: str, spec: ActionSpec | Fields) -> ActionSpec:
        """Adds or replaces an action; gives it as it is now in effect."""
        return self._ask(ActionSpec, "PUT", f"/v1/actions/{_escaped(action)}", msgspec.json.encode(spec))

    def put_actions(self, specs: Mapping[str, ActionSpec]) -> int:
        """Replaces the whole catalogue; gives the number of actions."""
        lines = [msgspec.json.encode({**msgspec.to_builtins(spec), "action": name}) for name, spec in specs.items()]
        # Nothing at all would be refused as a forgotten body; an empty array is meant.
        return self._ask(_Put, "PUT", "/v1/actions", b"\n".join(lines) or b"[]", NDJSON if lines else JSON).put

    def delete_action(self, action: str) -> None:
        """Withdraws an action."""
        self._send("DELETE", f"/v1/actions/{_escaped(action)}")

    def action(self, action: str) -> ActionSpec:
        """One action."""
        return self._ask(ActionSpec, "GET", f"/v1/actions/{_escaped(action)}")

    def actions(self) -> dict[str, ActionSpec]:
        """The whole catalogue, in order."""
        return self._ask(_Actions, "GET", "/v1/actions").actions

    def user(self, user: str) -> dict[str, Any]:
        """What is held about a user."""
        return self._ask(dict[str, Any], "GET", f"/v1/users/{_escaped(user)}")

    def forget(self, user: str) -> None:
        """Forgets a user."""
        self._send("DELETE", f"/v1/users/{_escaped(user)}")

    def models(self) -> dict[str, Any]:
        """Versions, and what serves."""
        return self._ask(dict[str, Any], "GET", "/v1/models")

    def memory(self, window_s: float = 60.0) -> MemoryReport:
        """Where the service's memory is; hot spots over the last seconds, at most 300."""
        return self._ask(MemoryReport, "GET", f"/v1/memory?window_s={window_s!r}")

    def not_ready(self) -> dict[str, str]:
        """What the service lacks to rank, by part; empty when it is ready."""
        try:
            self._send("GET", "/readyz")
        except ApiError as error:
            if error.status != 503:
                raise
            missing: dict[str, str] = error.problem.get("missing") or {"service": str(error)}
            return missing
        return {}

    def wait_ready(self, timeout_s: float = 10.0, every_s: float = 0.02) -> None:
        """Returns once the service can rank.

        Raises:
            NotReady: not within `timeout_s`; says what was missing.
        """
        give_up_ms = self._clock.monotonic_ms() + timeout_s * 1000.0
        while missing := self._missing():
            if self._clock.monotonic_ms() >= give_up_ms:
                reasons = "; ".join(f"{part}: {reason}" for part, reason in missing.items())
                raise NotReady(f"{self._http.base_url} is not ready after {timeout_s:g} s: {reasons}")
            self._sleep(every_s)

    def _missing(self) -> dict[str, str]:
        try:
            return self.not_ready()
        except Unreachable as error:
            return {"service": str(error)}

    def _tell(
        self, kind: str, user: str, answer: RankAnswer, item: AnswerItem, value: float | None = None
    ) -> EventAnswer:
        return self.events([self._feedback(kind, user, answer, item, value)])[0]

    def _feedback(
        self, kind: str, user: str, answer: RankAnswer, item: AnswerItem, value: float | None = None
    ) -> FeedbackEvent:
        return FeedbackEvent(
            id=self._new_id(),
            time=from_seconds(self._clock.now_s()),
            ranking=answer.id,
            user=user,
            type=kind,
            action=item.action,
            target=item.target,
            value=value,
        )

    def _ask(self, kind: type[T], method: str, path: str, body: bytes | None = None, media: str = JSON) -> T:
        content = self._send(method, path, body, media)
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as error:
            raise ClientError(f"{method} {path} answered what this client does not know: {error}") from error

    def _send(self, method: str, path: str, body: bytes | None = None, media: str = JSON) -> bytes:
        headers = None if body is None else {"content-type": media}
        try:
            response = self._http.request(method, path, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}") from error
        if not response.is_success:
            raise ApiError(response.status_code, _problem_of(response))
        return response.content


def _batch_answer(line: bytes) -> RankAnswer | ApiError:
    try:
        return msgspec.json.decode(line, type=RankAnswer)
    except msgspec.ValidationError:
        problem = msgspec.json.decode(line, type=dict[str, Any])
        return ApiError(int(problem["status"]), problem)


def _bodies(lines: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Lines joined to bodies of at most `limit` bytes; a longer line is a body of its own."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        if held and size + len(line) > limit:
            yield b"\n".join(held)
            held, size = [], 0
        held.append(line)
        size += len(line) + 1
    if held:
        yield b"\n".join(held)


def _problem_of(response: httpx.Response) -> dict[str, Any]:
    try:
        return msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"title": response.text[:200] or response.reason_phrase, "status": response.status_code}


def _event_line(event: Event | Fields) -> bytes:
    return msgspec.json.encode(event) if isinstance(event, Mapping) else encode_event(event)


def _escaped(name: str) -> str:
    # A path of dots alone would be taken for "here" or "up" on its way.
    escaped = quote(name, safe="")
    return escaped.replace(".", "%2E") if escaped in (".", "..") else escaped


def _chunks(events: Sequence[Event | Fields], size: int) -> Iterator[Sequence[Event | Fields]]:
    for start in range(0, len(events), size):
        yield events[start : start + size]
