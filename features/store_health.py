"""What a feature store counts about itself, for metrics and readiness."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from features.circuit import Circuit, CircuitState

KEPT_LATENCIES = 1024


@dataclass
class StoreHealth:
    """Counters since start, over the request path (`read`, `claim`, `put`); the store writes, others read.

    Args:
        reads: calls of `read` that went out.
        timeouts: calls that were not answered in time.
        failures: calls that failed otherwise.
        refused: calls that the open circuit refused at once.
        restarts: how often an embedded server had to be started again with its guard.
        last_error: text of the latest time-out or failure of any operation; never holds a password.
        read_ms: how long the last reads took that were answered, in ms, oldest first.
    """

    circuit: Circuit | None = None
    reads: int = 0
    timeouts: int = 0
    failures: int = 0
    refused: int = 0
    restarts: int = 0
    last_error: str | None = None
    read_ms: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_LATENCIES))

    @property
    def circuit_state(self) -> CircuitState:
        """The circuit's state; `closed` for a store without one."""
        return self.circuit.state if self.circuit else "closed"
