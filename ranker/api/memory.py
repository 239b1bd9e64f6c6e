"""`GET /v1/memory`: where the memory of this process is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from ranker.answers import Service
from ranker.api.codec import encode
from ranker.api.problems import InvalidField, cut
from ranker.api.wire import Call, Reply
from ranker.inference.hot_spots import KEPT_S
from ranker.inference.memory_report import MemorySource, memory_report

WINDOW_S = 60.0
HELD = ("catalogue", "population")
"""Parts of the service's status that are sizes."""


class MemoryCalls:
    """Reads; changes nothing.

    Args:
        sources: pools that run now; whoever starts or ends one changes the list.
    """

    def __init__(self, service: Service, sources: Sequence[MemorySource]) -> None:
        self._service = service
        self._sources = sources

    async def get(self, call: Call) -> Reply:
        """The process, what the service holds, and all pools; `pools` is empty while no engine runs."""
        window_s = window_of(call.query)
        status: Mapping[str, Any] = self._service.status()
        held = {name: status[name] for name in HELD if name in status}
        return Reply(200, encode(memory_report(self._sources, window_s, held)))


def window_of(query: bytes) -> float:
    """The query's `window_s`.

    Raises:
        InvalidField: an unknown parameter, or no number above 0 and at most 300.
    """
    window_s = WINDOW_S
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name != "window_s":
            raise InvalidField(f"there is no parameter {cut(name, 200)!r}", cut(name, 200), cut(value, 200))
        try:
            window_s = float(value)
        except ValueError:
            window_s = 0.0
        if not 0.0 < window_s <= KEPT_S:
            must = f"is {cut(value, 200)!r}, not a number above 0 and at most {KEPT_S}"
            raise InvalidField(f"window_s {must}", "window_s", cut(value, 200))
    return window_s
