"""A tally as plain counts that go from one process to another, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ranker.api.tally import Histogram, Tally
from ranker.workers.counts import added

_SPLIT = "\n"
"""Between the parts of a name: in none of them."""


def counted(tally: Tally) -> dict[str, Any]:
    """All counts, by name."""
    return {
        "requests": {f"{status}{_SPLIT}{route}": n for (route, status), n in tally.requests.items()},
        "events": {_SPLIT.join(parts): n for parts, n in tally.events.items()},
        **{name: dict(getattr(tally, name)) for name in ("disconnects", "degraded", "rankings")},
        "items": _packed(tally.items),
        "latency_ms": {name: _packed(histogram) for name, histogram in tally.latency_ms.items()},
        "stage_ms": {name: _packed(histogram) for name, histogram in tally.stage_ms.items()},
    }


def both(tally: Tally, counts: Mapping[str, Any]) -> Tally:
    """A tally with the counts of others added."""
    total, found = added(counted(tally), counts), Tally()
    for name, n in total["requests"].items():
        status, _, route = name.partition(_SPLIT)
        found.requests[route, int(status)] = n
    for name, n in total["events"].items():
        status, _, reason = name.partition(_SPLIT)
        found.events[status, reason] = n
    found.disconnects, found.degraded, found.rankings = (
        Counter(total[name]) for name in ("disconnects", "degraded", "rankings")
    )
    _fill(found.items, total["items"])
    for histograms, name in ((found.latency_ms, "latency_ms"), (found.stage_ms, "stage_ms")):
        for label, packed in total[name].items():
            _fill(histograms[label], packed)
    return found


def _packed(histogram: Histogram) -> dict[str, Any]:
    return {"counts": list(histogram.counts), "total": histogram.total}


def _fill(histogram: Histogram, packed: Mapping[str, Any]) -> None:
    histogram.counts, histogram.total = list(packed["counts"]), float(packed["total"])
