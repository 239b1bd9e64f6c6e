"""Who is turned away at the engine's door, before the scheduler is asked."""

from __future__ import annotations

import math
from collections.abc import Container
from itertools import count

from ranker.inference.batch_run import Clock
from ranker.inference.engine_errors import EngineReason, Rejected
from ranker.inference.engine_stats import EngineStats
from ranker.inference.memory_errors import HistoryTooLong, InvalidSize
from ranker.inference.model import Payload
from ranker.inference.request import DEFAULT_BUDGETS_MS, Request, fault
from ranker.inference.versions import Stage, Versions

RETRY_MS = 1_000.0
"""What a request is told to wait for while a version loads, pages stay in use or the device hangs."""


class Gate:
    """Knows what is served now; `stuck` and `closing` shut it."""

    def __init__(self, versions: Versions, stats: EngineStats, clock: Clock) -> None:
        self.stuck = False
        self.closing = False
        self._versions = versions
        self._stats = stats
        self._clock = clock
        self._ids = count(1)

    def request(
        self, model_key: str, payload: Payload, *, priority: str, budget_ms: float | None, request_id: str | None
    ) -> Request:
        """A request that arrives now and costs what the model says; see `Engine.request`."""
        name = request_id if request_id is not None else f"#{next(self._ids)}"
        version = self._versions.find(model_key)
        if version is None:
            raise self.refused(name, "unknown_model", detail=f"model_key is {model_key!r}")
        try:
            tokens = version.model.cost(payload)
        except HistoryTooLong as error:
            raise self.refused(name, "too_large", detail=str(error)) from error
        except InvalidSize as error:
            raise self.refused(name, "invalid", detail=str(error)) from error
        now = self._clock()
        budget = DEFAULT_BUDGETS_MS.get(priority, math.inf) if budget_ms is None else budget_ms
        return Request(name, model_key, tokens, now, now + budget, priority)

    def refusal(self, request: Request, known: Container[str]) -> Rejected | None:
        """Why it may not come in, or None; `known` are the ids under which somebody waits."""
        name = request.request_id
        if not (
            type(name) is str and type(request.model_key) is str
        ):  # both are looked up; the rest is the scheduler's
            return self.refused(str(name), "invalid", detail=fault(request) or "")
        if (shut := self.shut(name)) is not None:
            return shut
        if name in known:
            return self.refused(name, "duplicate")
        version = self._versions.find(request.model_key)
        if version is None:
            return self.refused(name, "unknown_model", detail=f"model_key is {request.model_key!r}")
        if version.stage is Stage.LOADING:
            return self.refused(name, "loading", RETRY_MS)
        return self.refused(name, "retired") if version.stage is Stage.LEAVING else None

    def shut(self, name: str) -> Rejected | None:
        """Why nobody may come in now, or None."""
        if self.closing:
            return self.refused(name, "closing")
        return self.refused(name, "stuck", RETRY_MS) if self.stuck else None

    def refused(self, name: str, reason: EngineReason, retry_ms: float = 0.0, detail: str = "") -> Rejected:
        """Counts a rejection and makes its error."""
        self._stats.rejected(reason)
        return Rejected(name, reason, retry_ms, detail)
