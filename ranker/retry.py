"""When what failed is tried again: not at every look, but not never, since it may have been the disk."""

from __future__ import annotations

from dataclasses import dataclass, field

RETRY_LOOKS = 30


@dataclass
class Retry:
    """Counts looks since a failure.

    Args:
        looks: after so many it is time.
    """

    looks: int = RETRY_LOOKS
    _left: int | None = field(default=None, init=False)

    def failed(self) -> None:
        """The count begins anew."""
        self._left = self.looks

    def settled(self) -> None:
        """There is nothing to try again."""
        self._left = None

    def due(self) -> bool:
        """One look more; whether it is time. Never without a failure."""
        if self._left is None:
            return False
        self._left -= 1
        return self._left <= 0
