"""How far a follower may rely on what it knows, and whom the keeper has to wait for: two sides of one rule.

A `Beat` is a lease: until `limit_ms` after the keeper sent it, the follower takes the catalogue, and what it
knows of its users, for current. The stream is ordered, so who has read a beat has read every change before
it. A change is thus binding everywhere once each follower has acknowledged it, or the lease of the last beat
before it is over; and a follower that does not answer gets no further beat, so it is waited for once.
Both sides read the machine's one monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

BEATS_PER_LIMIT = 4.0


@dataclass
class Fence:
    """The follower's side.

    Args:
        now_ms: the machine's monotonic clock.
        limit_ms: how long a beat lets it rely on what it knows.
    """

    now_ms: Callable[[], float]
    limit_ms: float
    _sent_ms: float = field(default=-math.inf, init=False)

    def heard(self, sent_ms: float) -> None:
        """A beat that was sent then has been read."""
        self._sent_ms = max(self._sent_ms, sent_ms)

    @property
    def closed(self) -> bool:
        """Whether it may lag: what must not be wrong is withheld."""
        return self.now_ms() >= self._sent_ms + self.limit_ms

    @property
    def age_ms(self) -> float:
        """Since the last beat was sent."""
        return self.now_ms() - self._sent_ms


@dataclass
class Member:
    """The keeper's side: one follower.

    Args:
        sent: messages so far.
        acked: of those, how many have had their effect.
        serving: whether it has been told that it may rank.
        gone: its connection has ended; there is nobody to wait for.
    """

    limit_ms: float
    sent: int = 0
    acked: int = 0
    serving: bool = False
    gone: bool = False
    _beat_ms: float = field(default=-math.inf, init=False)
    _beat: int = field(default=0, init=False)
    _behind_ms: float | None = field(default=None, init=False)

    def count(self, now_ms: float) -> None:
        """A message was sent."""
        self.sent += 1
        if self._behind_ms is None:
            self._behind_ms = now_ms

    def beats(self, now_ms: float) -> None:
        """The message just counted is a beat."""
        self._beat_ms, self._beat = now_ms, self.sent

    def acknowledge(self, count: int, now_ms: float) -> None:
        """The first `count` messages have had their effect; a count that cannot be is not believed."""
        self.acked = max(self.acked, min(count, self.sent))
        self._behind_ms = None if self.acked == self.sent else now_ms

    def wants_beat(self, now_ms: float) -> bool:
        """Whether it has answered the last one, and that was long enough ago."""
        return self.acked >= self._beat and now_ms >= self._beat_ms + self.limit_ms / BEATS_PER_LIMIT

    def lease_ends_ms(self) -> float:
        """From then on it withholds what may be wrong, unless it is given another beat."""
        return self._beat_ms + self.limit_ms

    def live(self, now_ms: float) -> bool:
        """Whether it may rank without withholding anything."""
        return self.serving and not self.gone and now_ms < self.lease_ends_ms()

    def has(self, count: int) -> bool:
        """Whether nothing is to be waited for: it has seen so many messages, or is not there."""
        return self.acked >= count or self.gone or not self.serving

    def lag_ms(self, now_ms: float) -> float:
        """For how long at most something has been unacknowledged."""
        return 0.0 if self._behind_ms is None else now_ms - self._behind_ms
