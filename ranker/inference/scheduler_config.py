"""The scheduler's limits, checked when built."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


def _default_ageing() -> Mapping[str, float]:
    return {"premium": 50.0, "normal": 200.0}


@dataclass(frozen=True)
class SchedulerConfig:
    """Limits of batches and queue, and how classes share the device.

    Args:
        normal_share: the least part of dispatched tokens that waiting normal work gets, 0 to 1.
        ageing_ms: per priority, how long after its arrival a request counts as urgent whatever its deadline;
            shadow, and what is not named, has none.
        max_wait_ms: the longest that an idle device holds a batch for one more request.
        margin_ms: kept free before each deadline, for what follows the batch.
    """

    max_batch_tokens: int = 4096
    max_batch_requests: int = 64
    max_queue_requests: int = 10_000
    max_queue_tokens: int = 1_000_000
    normal_share: float = 0.25
    ageing_ms: Mapping[str, float] = field(default_factory=_default_ageing)
    max_wait_ms: float = 5.0
    margin_ms: float = 1.0

    def __post_init__(self) -> None:
        for name in ("max_batch_tokens", "max_batch_requests", "max_queue_requests", "max_queue_tokens"):
            _require(name, getattr(self, name), lambda value: value >= 1, "at least 1")
        _require("normal_share", self.normal_share, lambda value: 0.0 <= value <= 1.0, "from 0 to 1")
        for name in ("max_wait_ms", "margin_ms"):
            _require(name, getattr(self, name), lambda value: 0.0 <= value < math.inf, "finite and not negative")
        for priority, value in self.ageing_ms.items():
            _require(f"ageing_ms[{priority}]", value, lambda each: each >= 0.0, "not negative")


def _require(name: str, value: float, holds: Callable[[float], bool], wanted: str) -> None:
    if not holds(value):
        raise ValueError(f"{name} is {value!r}; it must be {wanted}")
