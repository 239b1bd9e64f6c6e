"""What the records of the inference bench say."""

from __future__ import annotations

import math
from collections.abc import Sequence

from training.bench.core_load import Record
from training.bench.figures import percentile


def in_time(record: Record, deadline_ms: float) -> bool:
    """Whether it was answered by its deadline, as its client saw it."""
    return record.status == 200 and record.took_s * 1000.0 <= deadline_ms


def added_ms(records: Sequence[Record], share: float, model_ms: float) -> float:
    """A percentile of what the server adds to the model's time."""
    return percentile([record.took_s * 1000.0 for record in records if record.status == 200], share) - model_ms


def goodput(records: Sequence[Record], deadline_ms: float, seconds: float) -> float:
    """Requests answered in time, per second."""
    return sum(in_time(record, deadline_ms) for record in records) / seconds


def recovery_ms(records: Sequence[Record], overload: tuple[float, float], deadline_ms: float) -> float:
    """From the end of an overload to the first span of one deadline in which as many are in time as were before it.

    Args:
        overload: its start and end, in seconds.
    """
    start_s, end_s = overload
    before = _share([record for record in records if record.due_s < start_s], deadline_ms)
    last_s = max(record.due_s for record in records)
    span_s, spans = deadline_ms / 1000.0, 0
    while (from_s := end_s + spans * span_s) < last_s:
        span = [record for record in records if from_s <= record.due_s < from_s + span_s]
        if span and _share(span, deadline_ms) >= before:
            return spans * deadline_ms
        spans += 1
    return math.inf


def share_in_time(records: Sequence[Record], priority: str, deadline_ms: float) -> float:
    """Of the requests of a priority."""
    return _share([record for record in records if record.priority == priority], deadline_ms)


def _share(records: Sequence[Record], deadline_ms: float) -> float:
    return sum(in_time(record, deadline_ms) for record in records) / len(records) if records else 0.0
