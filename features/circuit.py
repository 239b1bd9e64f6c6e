"""A circuit breaker: stops asking a store that does not answer, and finds out cheaply when it is back.

Sans I/O: it holds counts, the caller brings the time.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

CircuitState = Literal["closed", "open", "half_open"]


class Circuit:
    """closed → open after failures → half_open, one probe at a time → closed when a probe succeeds.

    A failure opens it when it is the `failures_to_open`-th in a row, or when of the last `window`
    outcomes at least the share `failure_share` failed; a success never does. Outcomes that arrive while
    it is open are late ones of calls that were let through before; they change nothing. The state moves
    to half_open in `allow` only.

    Args:
        failures_to_open: failures in a row, >= 1.
        open_s: seconds for which everything is refused.
        window: outcomes that the share is taken of, >= 1; no share is taken of fewer.
        failure_share: in (0, 1].
        probe_s: after this many seconds without an outcome a probe counts as lost, and the next is let through.
    """

    def __init__(
        self,
        failures_to_open: int = 5,
        open_s: float = 1.0,
        window: int = 50,
        failure_share: float = 0.5,
        probe_s: float = 5.0,
    ) -> None:
        _check(failures_to_open, open_s, window, failure_share, probe_s)
        self._failures_to_open = failures_to_open
        self._open_s = open_s
        self._probe_s = probe_s
        self._most_failures = failure_share * window
        self._outcomes: deque[bool] = deque(maxlen=window)
        self._failures_in_row = 0
        self._refuse_until = 0.0
        self._state: CircuitState = "closed"
        self.openings = 0

    @property
    def state(self) -> CircuitState:
        """`closed`, `open` or `half_open`, as of the last call; `openings` counts how often it opened."""
        return self._state

    def allow(self, now: float) -> bool:
        """Whether a call may go out; one that may must end in `success`, `failure` or `forget`."""
        if self._state == "closed":
            return True
        if now < self._refuse_until:
            return False
        self._state = "half_open"
        self._refuse_until = now + self._probe_s
        return True

    def success(self, now: float) -> None:  # noqa: ARG002  # one shape for all outcomes
        """The call was answered."""
        if self._state == "half_open":
            self._close()
        elif self._state == "closed":
            self._failures_in_row = 0
            self._outcomes.append(True)

    def failure(self, now: float) -> None:
        """The call failed, or was not answered in time."""
        if self._state == "half_open":
            self._open(now)
        elif self._state == "closed":
            self._failures_in_row += 1
            self._outcomes.append(False)
            if self._failures_in_row >= self._failures_to_open or self._share_is_reached():
                self._open(now)

    def forget(self, now: float) -> None:
        """The call ended without saying anything about the store (it was cancelled): the next may probe."""
        if self._state == "half_open":
            self._refuse_until = now

    def _share_is_reached(self) -> bool:
        return len(self._outcomes) == self._outcomes.maxlen and self._outcomes.count(False) >= self._most_failures

    def _open(self, now: float) -> None:
        self._state = "open"
        self._refuse_until = now + self._open_s
        self.openings += 1

    def _close(self) -> None:
        self._state = "closed"
        self._failures_in_row = 0
        self._outcomes.clear()


def _check(failures_to_open: int, open_s: float, window: int, failure_share: float, probe_s: float) -> None:
    if failures_to_open < 1:
        raise ValueError(f"failures_to_open {failures_to_open} is less than 1")
    if window < 1:
        raise ValueError(f"window {window} is less than 1")
    if not 0.0 < failure_share <= 1.0:
        raise ValueError(f"failure_share {failure_share} is not in (0, 1]")
    if not open_s >= 0.0 or not probe_s >= 0.0:
        raise ValueError(f"open_s {open_s} and probe_s {probe_s} must not be negative")
