"""Errors of the engine, as its callers see them.

EngineError
├── Rejected        the request did not run; says why, and when to try again
├── ModelFailed     the model raised for this request; the cause is chained
├── DeviceStuck     the request was in a batch that did not end
└── VersionRefused  a version could not be loaded or retired
"""

from __future__ import annotations

from typing import Literal

from ranker.inference.request import Reason, Rejection

EngineReason = Reason | Literal["unknown_model", "loading", "retired", "busy", "stuck", "closing"]
"""The scheduler's reasons, and: no such version; it is not loaded yet; it takes no more; pages stayed in use; the
device hangs; the engine shuts down."""


class EngineError(Exception):
    """Root of what the engine raises on purpose."""


class Rejected(EngineError):
    """A request that did not run.

    Args:
        retry_after_ms: how long the same request, with a fresh budget, should wait; 0 where waiting changes nothing.
        detail: a sentence with the field and value, where there is one.
    """

    def __init__(self, request_id: str, reason: EngineReason, retry_after_ms: float = 0.0, detail: str = "") -> None:
        super().__init__(f"request {request_id!r} was rejected: {reason}{detail and '; ' + detail}")
        self.request_id = request_id
        self.reason = reason
        self.retry_after_ms = retry_after_ms
        self.detail = detail

    @staticmethod
    def by_scheduler(rejection: Rejection) -> Rejected:
        """The scheduler's answer as an error."""
        return Rejected(rejection.request_id, rejection.reason, rejection.retry_after_ms, rejection.detail)


class ModelFailed(EngineError):
    """The model raised while this request was being computed, alone or with what it could not be told apart from."""


class DeviceStuck(EngineError):
    """The batch did not end in any time that a batch may take."""


class VersionRefused(EngineError):
    """A version that is there already, or is not there, or cannot run on this device."""
