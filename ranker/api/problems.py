"""Errors as `application/problem+json` (RFC 9457): the one place where the error tree becomes statuses.

RequestError (ranker.errors)
├── Malformed            400: the body is not JSON at all
├── MethodNotAllowed     405
├── BodyTimeout          408: the body did not arrive in time
├── UnsupportedEncoding  415: a compressed body
└── InvalidRequest       422
    └── InvalidField         the same, with the offending value
"""

from __future__ import annotations

import logging
import uuid

import msgspec
from starlette.exceptions import HTTPException

from features.errors import EventError, LogError, StoreError
from ranker.api.limits import Limits
from ranker.api.wire import Headers, Reply
from ranker.errors import InvalidRequest, Overloaded, RequestError, ServiceUnavailable

PROBLEM = b"application/problem+json"
MAX_DETAIL = 600

_logger = logging.getLogger(__name__)
_TITLES = {
    400: "The request cannot be read",
    404: "There is no such thing",
    405: "The path does not know this method",
    408: "The body did not arrive in time",
    409: "The same id came with another body",
    413: "The body is too large",
    415: "The body's encoding is not supported",
    422: "A field has a value that it cannot have",
    500: "An error of the service",
    503: "The service cannot do this now",
}


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The body of every 4xx and 5xx. `type` is stable, relative to the service.

    Args:
        field: JSON path of the field (`$.context.surface`), or the name of a header or parameter.
        value: what was there, as JSON text cut to 200 characters.
        error_id: of a 500, to find its traceback in the service's log.
        missing: of `/readyz`, what is not ready and why, by part.
    """

    type: str
    title: str
    status: int
    detail: str = ""
    field: str | None = None
    value: str | None = None
    error_id: str | None = None
    missing: dict[str, str] | None = None


class Malformed(RequestError):
    """The body is not JSON."""

    slug = "malformed"


class MethodNotAllowed(RequestError):
    """The path exists, the method does not."""

    status = 405
    slug = "method-not-allowed"

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"{method[:32]} is not one of {allowed}")
        self.allowed = allowed


class BodyTimeout(RequestError):
    """The body did not arrive in time."""

    status = 408
    slug = "body-timeout"


class UnsupportedEncoding(RequestError):
    """The body is compressed."""

    status = 415
    slug = "unsupported-encoding"


class InvalidField(InvalidRequest):
    """A field has a value that it cannot have; `value` is its JSON text, cut."""

    def __init__(self, detail: str, field: str | None, value: str | None = None) -> None:
        super().__init__(detail, field)
        self.value = value


def reply_for(error: Exception, limits: Limits) -> Reply:
    """The answer to an error, whatever it is; an unexpected one is logged under an id and not explained."""
    if isinstance(error, RequestError):
        return _refusal(error)
    if isinstance(error, EventError):
        return _refusal(InvalidRequest(error.detail, _field_of(error.detail)))
    if isinstance(error, ServiceUnavailable | LogError | StoreError):
        return _unavailable(error, limits)
    if isinstance(error, Overloaded):
        return _retry_later(problem(503, "overloaded", str(error)), limits)
    if isinstance(error, HTTPException):
        return _from_framework(error)
    return _unexpected(error)


def problem_reply(problem: Problem, headers: Headers = ()) -> Reply:
    """A problem on the wire."""
    return Reply(problem.status, msgspec.json.encode(problem), PROBLEM, headers)


def problem(status: int, slug: str, detail: str) -> Problem:
    """A problem without a field."""
    return Problem(type=f"/problems/{slug}", title=_TITLES.get(status, "Error"), status=status, detail=cut(detail))


def cut(text: str, limit: int = MAX_DETAIL) -> str:
    """At most `limit` characters, and says so where it cuts."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _refusal(error: RequestError) -> Reply:
    body = msgspec.structs.replace(
        problem(error.status, error.slug, error.detail),
        field=None if error.field is None else cut(error.field),
        value=error.value if isinstance(error, InvalidField) else None,
    )
    return problem_reply(body, ((b"allow", error.allowed.encode()),) if isinstance(error, MethodNotAllowed) else ())


def _unavailable(error: Exception, limits: Limits) -> Reply:
    # Only our own sentence goes out: a foreign error's text may hold a path or an address.
    detail = str(error) if isinstance(error, ServiceUnavailable) else "nothing was changed"
    _logger.warning("unavailable: %s: %s", type(error).__name__, error)
    return _retry_later(problem(503, "unavailable", detail), limits)


def _retry_later(problem: Problem, limits: Limits) -> Reply:
    return problem_reply(problem, ((b"retry-after", b"%d" % limits.retry_after_s),))


def _from_framework(error: HTTPException) -> Reply:
    slug = {404: "not-found", 405: "method-not-allowed", 413: "too-large"}.get(error.status_code, "http")
    detail = "no such path" if error.status_code == 404 else str(error.detail)
    return problem_reply(problem(error.status_code, slug, detail))


def _unexpected(error: Exception) -> Reply:
    error_id = uuid.uuid4().hex
    _logger.error("error %s: %s", error_id, type(error).__name__, exc_info=error)
    body = msgspec.structs.replace(problem(500, "internal", "it was logged under the error id"), error_id=error_id)
    return problem_reply(body)


def _field_of(detail: str) -> str | None:
    _, marked, path = detail.rpartition(" - at `")
    return path.rstrip("`") if marked else None
