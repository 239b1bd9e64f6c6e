"""Pace: batches are filled, not hurried, and a backlog is taken in larger ones."""

from __future__ import annotations

import pytest

from features.applier_settings import ApplierSettings
from features.pace import Pace

SETTINGS = ApplierSettings(batch_events=8, catch_up_events=32, pause_s=0.005, gather_s=0.1)


@pytest.mark.parametrize("rate", [50, 150, 400, 1000])
def test_at_a_steady_rate_batches_are_nearly_full_and_nothing_waits_longer_than_allowed(rate: int) -> None:
    pace, waiting, sizes = Pace(SETTINGS), 0.0, list[float]()
    for _ in range(300):
        waiting += rate * pace.gather_s
        batch = min(waiting, pace.next_batch(int(waiting)))
        sizes.append(batch)
        waiting -= batch
        assert SETTINGS.pause_s <= pace.gather_s <= SETTINGS.gather_s
    usual = sum(sizes[100:]) / 200
    assert min(8.0, 0.1 * rate) * 0.7 <= usual <= 10.0
    assert waiting < 32.0


def test_a_backlog_is_taken_in_larger_batches() -> None:
    pace = Pace(SETTINGS)
    assert [pace.next_batch(behind) for behind in (1, 8, 32, 33, 5000)] == [8, 8, 8, 32, 32]
