"""The engine's own limits, checked when built."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class EngineConfig:
    """What is the driver's to decide; when requests run is the scheduler's.

    Args:
        stuck_after_ms: a run of the model that takes longer, and longer than `stuck_factor` times its prediction, is
            taken to hang.
        most_returns: how often a request may go back to the queue because its pages had left or were in use.
        most_runs: how many runs a failed batch is worth, to find whose fault it was; 2·log2(n) find one in n.
        drain_ms: how long `close` lets what is queued end.
    """

    stuck_after_ms: float = 5_000.0
    stuck_factor: float = 10.0
    most_returns: int = 3
    most_runs: int = 16
    drain_ms: float = 5_000.0

    def __post_init__(self) -> None:
        for name, least in (("stuck_after_ms", 1.0), ("stuck_factor", 1.0), ("drain_ms", 0.0)):
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise ValueError(f"{name} is {value!r}; it must be finite and at least {least:g}")
        for name, least in (("most_returns", 0), ("most_runs", 1)):
            value = getattr(self, name)
            if not value >= least:
                raise ValueError(f"{name} is {value!r}; it must be at least {least}")
