"""What a demo is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from ranker.config import TrainConfig, load_train

MAX_QUERIES, MAX_ROUNDS, MAX_EPOCHS, FOLDS = 6_000, 60, 3, 2
"""Enough to show what it does, in half the time."""


@dataclass(frozen=True)
class DemoPlan:
    """What to show.

    Args:
        source: what to import; None simulates an assistant.
        format: of the source.
        folder: an empty or new folder for log, models and what the service writes.
        seed, users, days: of the simulated assistant.
        interactions: most that are played over HTTP.
        shown: of these, so many in detail.
    """

    source: Path | None
    format: str
    folder: Path
    seed: int = 1
    users: int = 225
    days: int = 14
    interactions: int = 400
    shown: int = 4

    @property
    def log(self) -> Path:
        """What is learned from and judged."""
        return self.folder / "log"

    @property
    def models(self) -> Path:
        """The registry."""
        return self.folder / "models"

    @property
    def service_log(self) -> Path:
        """The service's own log: what had happened before it started, then what it sees."""
        return self.folder / "service" / "log"


def quick_training() -> TrainConfig:
    """The configured training on fewer queries and with fewer trees."""
    config = load_train()
    return msgspec.structs.replace(
        config,
        sample=msgspec.structs.replace(
            config.sample, max_queries=min(config.sample.max_queries, MAX_QUERIES), folds=FOLDS
        ),
        text=msgspec.structs.replace(config.text, epochs=min(config.text.epochs, MAX_EPOCHS)),
        trees=msgspec.structs.replace(config.trees, rounds=min(config.trees.rounds, MAX_ROUNDS)),
    )
