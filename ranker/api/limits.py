"""What the HTTP layer refuses to read: one place, printed in the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass

MAX_DEPTH = 16
"""Arrays and objects inside one of a request's free `fields`, its own object counted."""

MAX_EVENT_DEPTH = 64
"""Arrays and objects inside one another in a posted event."""


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, lengths in characters, times in seconds.

    Args:
        rank_bytes: body of `POST /v1/rank`, and each line of `POST /v1/rank/batch`, whose body has no limit.
        events_bytes: body of `POST /v1/events`.
        events: events in one post.
        action_bytes: body of `PUT /v1/actions/{action}`.
        catalogue_bytes: body of `PUT /v1/actions`; MAX_ACTIONS entries of some 300 bytes fit.
        caller_chars: header `X-Caller`.
        batch_idle_s: a body of `POST /v1/rank/batch` of which nothing has arrived for so long is given up.
        body_s: a body that has not arrived by then is given up.
        retry_after_s: what a 503 advises.
    """

    rank_bytes: int = 256 * 1024
    events_bytes: int = 8 * 1024 * 1024
    events: int = 10_000
    action_bytes: int = 256 * 1024
    catalogue_bytes: int = 32 * 1024 * 1024
    caller_chars: int = 256
    batch_idle_s: float = 60.0
    body_s: float = 10.0
    retry_after_s: int = 1
