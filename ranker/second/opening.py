"""Opens the second stage of a service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ranker.clock import Clock
from ranker.config import ServeConfig
from ranker.inference.memory_report import MemorySource
from ranker.release.registry import Registry
from ranker.second.desk import SecondDesk
from ranker.second.histories import Histories


def open_desk(
    registry: Registry, logdir: Path, written: Callable[[], int], clock: Clock, config: ServeConfig,
    memory: list[MemorySource],
) -> SecondDesk:  # fmt: skip
    """A desk that follows this log.

    Args:
        written: offset below which everything was appended whole.
        memory: pools that `/v1/memory` lists.
    """

    def histories(keep: int, forgotten: Callable[[str], None]) -> Histories:
        return Histories(
            logdir, written, keep, windows=config.outcomes, max_happenings=config.second.max_happenings,
            attic_bytes=config.second.attic_mib << 20, forgotten=forgotten,
        )  # fmt: skip

    return SecondDesk(registry, histories, clock, config.second, memory)
