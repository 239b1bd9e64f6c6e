"""What the records of the inference bench say."""

from __future__ import annotations

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


def recovery_s(records: Sequence[Record], overload_s: float, deadline_ms: float) -> float:
    """How long after the overload the last request was due that was not answered in time; 0 if there was none."""
    bad = [record.due_s for record in records if record.due_s >= overload_s and not in_time(record, deadline_ms)]
    return max(bad) - overload_s if bad else 0.0


def share_in_time(records: Sequence[Record], priority: str, deadline_ms: float) -> float:
    """Of the requests of a priority."""
    own = [record for record in records if record.priority == priority]
    return sum(in_time(record, deadline_ms) for record in own) / len(own) if own else 0.0
