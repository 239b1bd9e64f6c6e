"""The tally and the service's status as Prometheus text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from ranker.answers import Service, Workers
from ranker.api.counted import both
from ranker.api.tally import Histogram, Tally

CONTENT_TYPE = CONTENT_TYPE_LATEST.encode()
Counts = Mapping[tuple[str, ...], float]
CIRCUIT_STATES = ("closed", "open", "half_open")


class ServiceCollector(Collector):
    """Reads the counts when it is scraped; owns none.

    `service.status()` is rendered as it is: each number is a gauge `nextaction_<path>`, with two
    exceptions: `drops` (`{"stage:reason": count}`) becomes a counter by stage and reason, a string named
    `circuit` becomes a gauge by state, and a mapping named `feed_lag_ms` a gauge by worker. With several
    workers the counts of all are added up.
    """

    def __init__(self, tally: Tally, service: Service, workers: Workers | None = None) -> None:
        self._tally = tally
        self._service = service
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        """All families."""
        tally = self._tally if self._workers is None else both(self._tally, self._workers.counts().get("http", {}))
        yield from _counters(tally)
        yield from _histograms(tally)
        status = dict(self._service.status())
        yield _drops(status.pop("drops", {}))
        yield _gauge("ready", "1 when the service can rank", {(): 0.0 if self._service.not_ready() else 1.0})
        yield from _status_gauges(status, "nextaction")


def render(registry: CollectorRegistry) -> bytes:
    """The text of `/metrics`."""
    return generate_latest(registry)


def registry_of(tally: Tally, service: Service, workers: Workers | None = None) -> CollectorRegistry:
    """A registry of our own: what other libraries register globally stays out."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServiceCollector(tally, service, workers))
    return registry


def _counters(tally: Tally) -> Iterator[Metric]:
    requests: Counts = {(route, str(status)): count for (route, status), count in tally.requests.items()}
    yield _counter("http_requests", "Answers by route and status", requests, "route", "status")
    yield _counter("http_disconnects", "Clients that left during their body", _single(tally.disconnects), "route")
    yield _counter("rankings", "Rankings by traffic type", _single(tally.rankings), "traffic")
    yield _counter("degraded", "Rankings degraded, by reason", _single(tally.degraded), "reason")
    yield _counter("events", "Posted events by result", dict(tally.events.items()), "result", "reason")


def _histograms(tally: Tally) -> Iterator[Metric]:
    latency = HistogramMetricFamily("nextaction_http_request_seconds", "Arrival to answer", labels=["route"])
    stages = HistogramMetricFamily("nextaction_stage_seconds", "Time in a stage of a ranking", labels=["stage"])
    items = HistogramMetricFamily("nextaction_items_per_answer", "Actions in an answer", labels=[])
    for family, histograms in ((latency, tally.latency_ms), (stages, tally.stage_ms)):
        for name, histogram in sorted(histograms.items()):
            family.add_metric([name], _buckets(histogram, 1e-3), histogram.total * 1e-3)
        yield family
    items.add_metric([], _buckets(tally.items, 1.0), tally.items.total)
    yield items


def _buckets(histogram: Histogram, scale: float) -> list[tuple[str, float]]:
    edges = [f"{round(edge * scale, 9):.9g}" for edge in histogram.edges] + ["+Inf"]
    buckets, below = [], 0
    for edge, count in zip(edges, histogram.counts, strict=True):
        below += count
        buckets.append((edge, float(below)))
    return buckets


def _drops(drops: Mapping[str, float]) -> Metric:
    counts = {tuple(name.partition(":")[::2]): count for name, count in drops.items()}
    return _counter("drops", "Candidates removed, by stage and reason", counts, "stage", "reason")


def _status_gauges(status: Mapping[str, Any], prefix: str) -> Iterator[Metric]:
    for name, value in status.items():
        path = f"{prefix}_{re.sub(r'[^A-Za-z0-9_]', '_', str(name))}"
        if name == "feed_lag_ms" and isinstance(value, Mapping):
            family = GaugeMetricFamily(path, "For how long a worker has not taken everything in", labels=["worker"])
            yield _filled(family, {(worker,): lag_ms for worker, lag_ms in value.items()}.items())
        elif isinstance(value, Mapping):
            yield from _status_gauges(value, path)
        elif name == "circuit" and isinstance(value, str):
            yield _circuit(path, value)
        elif isinstance(value, bool | int | float):
            yield GaugeMetricFamily(path, f"{name} of the service's status", value=float(value))


def _circuit(path: str, state: str) -> Metric:
    family = GaugeMetricFamily(path, "1 at the circuit's state", labels=["state"])
    for known in CIRCUIT_STATES:
        family.add_metric([known], float(known == state))
    return family


def _single(counts: Mapping[str, float]) -> Counts:
    return {(name,): count for name, count in counts.items()}


def _counter(name: str, text: str, counts: Counts, *labels: str) -> Metric:
    family = CounterMetricFamily(f"nextaction_{name}", text, labels=labels)
    return _filled(family, counts.items())


def _gauge(name: str, text: str, values: Counts) -> Metric:
    return _filled(GaugeMetricFamily(f"nextaction_{name}", text, labels=[]), values.items())


def _filled(family: Any, values: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    for labels, value in sorted(values):
        family.add_metric(list(labels), value)
    metric: Metric = family
    return metric
