"""How patient an applier is, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ApplierSettings:
    """Args:
    batch_events: most events of a batch: applying them takes about .6 ms, in which no request runs.
    catch_up_events: the same while several batches wait already.
    pause_s: wait after a batch that was not full, so that the next is worth its exchange.
    gather_s: how much longer events that nobody waits for gather after it, at most: under load just until a batch
        is full, so that batches do not follow each other.
    poll_s: how often an idle applier looks for events that nobody told it of.
    check_s: how often an idle applier makes sure that the store is still what it was.
    back_off_s: first and longest wait after a failure.
    read_timeout_ms: of the reads of a batch; no request waits for them.
    kept_rows: most rows of users and sessions that stay unpacked between batches.
    """

    batch_events: int = 8
    catch_up_events: int = 32
    pause_s: float = 0.005
    gather_s: float = 0.1
    poll_s: float = 0.05
    check_s: float = 1.0
    back_off_s: tuple[float, float] = (0.02, 1.0)
    read_timeout_ms: float = 1000.0
    kept_rows: int = 1024


@dataclass
class ApplierCounts:
    """Counters since start, for metrics."""

    events: int = 0
    batches: int = 0
    retries: int = 0
    crashes: int = 0
    rebuilds: int = 0
    take_overs: int = 0
    last_error: str | None = None
