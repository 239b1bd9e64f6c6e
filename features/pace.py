"""How large an applier's batches are, and how far apart: sans I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from features.applier_settings import ApplierSettings

SHORTER, LONGER = 0.8, 1.1
"""What a full batch, and another, make of the time that events gather."""


@dataclass
class Pace:
    """Under load, events gather just until a batch is full: batches that follow each other would make a queue.

    Args:
        gather_s: how long events that nobody waits for gather after the latest batch.
    """

    settings: ApplierSettings
    gather_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.gather_s = self.settings.gather_s

    def next_batch(self, behind: int) -> int:
        """Most events of the next batch, when so many wait."""
        settings = self.settings
        step = SHORTER if behind >= settings.batch_events else LONGER
        self.gather_s = min(settings.gather_s, max(settings.pause_s, self.gather_s * step))
        return settings.catch_up_events if behind > settings.catch_up_events else settings.batch_events
