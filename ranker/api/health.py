"""`/healthz`, `/readyz`, `/metrics`, `/v1/models`: how the process is, for machines and for people."""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry

from ranker.answers import Service, Workers
from ranker.api import metrics
from ranker.api.codec import encode
from ranker.api.limits import Limits
from ranker.api.problems import problem, problem_reply
from ranker.api.reading import switches
from ranker.api.wire import Call, Reply


class HealthAnswer(msgspec.Struct, frozen=True):
    """The process is up."""

    status: str = "ok"


class ReadyAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The service can rank; `workers` where there may be several: how many do."""

    ready: bool
    workers: int | None = None


class HealthCalls:
    """Probes take any query string: who scrapes adds what he likes."""

    def __init__(
        self, service: Service, limits: Limits, registry: CollectorRegistry, workers: Workers | None = None
    ) -> None:
        self._workers = workers
        self._service = service
        self._limits = limits
        self._registry = registry

    async def healthz(self, _call: Call) -> Reply:
        """200 while the process answers at all."""
        return Reply(200, encode(HealthAnswer()))

    async def readyz(self, _call: Call) -> Reply:
        """200 when able to rank, else 503 that names what is not ready."""
        missing = self._service.not_ready()
        if not missing:
            workers = self._workers.live() if self._workers is not None else None
            return Reply(200, encode(ReadyAnswer(True, workers)))
        detail = "; ".join(f"{part}: {reason}" for part, reason in missing.items())
        body = msgspec.structs.replace(problem(503, "not-ready", detail), missing=missing)
        return problem_reply(body, ((b"retry-after", b"%d" % self._limits.retry_after_s),))

    async def metrics(self, _call: Call) -> Reply:
        """Prometheus text."""
        return Reply(200, metrics.render(self._registry), metrics.CONTENT_TYPE)

    async def models(self, call: Call) -> Reply:
        """Which versions there are, and what serves."""
        switches(call)
        return Reply(200, encode(self._service.models()))
