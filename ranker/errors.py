"""Errors of the service.

RankerError
├── ConfigError        a broken or missing config, policy, model or catalogue file; stops the start
├── RequestError       a request that cannot be answered; becomes a 4xx that names field and value
│   ├── InvalidRequest     422
│   ├── TooLarge           413
│   ├── Conflict           409: the same id with another body
│   └── NotFound           404
├── ServiceUnavailable 503: events cannot be made durable
└── Overloaded         503: a ranking would come too late; nothing was done
"""

from __future__ import annotations


class RankerError(Exception):
    """Root of the errors that `ranker` raises on purpose."""


class ConfigError(RankerError):
    """A file that the service needs is missing or broken; one line that names file, field and value."""


class RequestError(RankerError):
    """A request that cannot be answered.

    Args:
        detail: a sentence with the value.
        field: JSON path of the field, such as `$.context.surface`.
    """

    status = 400
    slug = "bad-request"

    def __init__(self, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field


class InvalidRequest(RequestError):
    """A field has a value that it cannot have."""

    status = 422
    slug = "invalid"


class TooLarge(RequestError):
    """The body, or a list in it, is over a printed limit."""

    status = 413
    slug = "too-large"


class Conflict(RequestError):
    """The same id came with another body."""

    status = 409
    slug = "conflict"


class NotFound(RequestError):
    """There is no such thing."""

    status = 404
    slug = "not-found"


class ServiceUnavailable(RankerError):
    """Events cannot be made durable now."""


class Overloaded(RankerError):
    """More was asked than can be ranked in time; nothing was done about this request."""
