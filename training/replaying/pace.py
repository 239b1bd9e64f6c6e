"""When each ranking is due: the log's own gaps, so many times faster."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Pace:
    """Waits for the moment that a logged time comes to.

    Args:
        speed: times real time; infinite does not wait.
        clock: seconds, monotonic.
        sleep: waits so many seconds.
    """

    speed: float = math.inf
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _origin: tuple[float, float] | None = field(default=None, init=False)

    def wait(self, logged_s: float) -> float:
        """Returns when it is due; gives how many ms later than that it is.

        The first one sets the clock; one that is earlier in the log than the one before is due at once.
        """
        if math.isinf(self.speed):
            return 0.0
        now_s = self.clock()
        if self._origin is None:
            self._origin = logged_s, now_s
        first_s, started_s = self._origin
        due_s = started_s + max(logged_s - first_s, 0.0) / self.speed
        if due_s > now_s:
            self.sleep(due_s - now_s)
            now_s = self.clock()
        return max(0.0, (now_s - due_s) * 1000.0)
