"""Windows and gains: checked when built, the same for the service and for training, and remembered by the store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from features.applier import Applier
from features.events import FeedbackEvent, from_seconds
from features.label_config import Gains, LabelSettings, OutcomeWindows
from features.memory_store import MemoryStore
from features.outcomes import WINDOWS, is_late, settle
from features.rows import OfferedItem, RankingRow
from features.store_marks import STATE_FORMAT, format_with
from ranker.config import load_serve, load_train
from tests.features.streams import EventStream, write_log

SHORT = OutcomeWindows(accidental_s=1.0, attribution_s=60.0)


def test_the_shipped_files_agree_on_what_counts() -> None:
    assert load_serve().outcomes == load_train().outcomes == WINDOWS
    assert load_train().labels == LabelSettings()


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (OutcomeWindows, {"accidental_s": -1.0}),
        (OutcomeWindows, {"attribution_s": 0.0}),
        (OutcomeWindows, {"attribution_s": 8 * 86400.0}),
        (OutcomeWindows, {"attribution": 1.0}),
        (Gains, {"dismissed": 1.0}),
        (Gains, {"accidental": 0.5}),
        (Gains, {"accepted": 3.0, "completed": 2.0}),
        (Gains, {"completed": 0.0}),
        (LabelSettings, {"unseen": "maybe"}),
        (LabelSettings, {"reuse_s": float("nan")}),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(kind: type[Any], wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, kind)


def test_feedback_after_the_attribution_window_of_its_own_ranking_is_late() -> None:
    row = RankingRow(1000.0, "u", None, [], [OfferedItem("a", None)])

    def feedback(at_s: float) -> FeedbackEvent:
        return FeedbackEvent(id="f", time=from_seconds(1000.0 + at_s), ranking="r", user="u", type="accept", action="a")

    assert not is_late(row, feedback(60.0), SHORT)
    assert is_late(row, feedback(60.001), SHORT)
    assert settle(row, feedback(61.0), SHORT) == []
    assert row.items[0].bits == 0, "it leaves no trace"
    assert not is_late(row, feedback(-5.0), SHORT), "a clock that is behind is no reason"
    assert len(settle(row, feedback(60.0), SHORT)) == 1


def test_a_store_that_was_counted_by_other_windows_is_filled_anew(tmp_path: Path) -> None:
    write_log(tmp_path, EventStream(3).take(120))
    store = MemoryStore()

    async def start(windows: OutcomeWindows) -> tuple[int, int]:
        applier = Applier(tmp_path, lambda: 120, store, monotonic_ms=lambda: 0.0, windows=windows)
        await applier.recover()
        applier.close()
        return applier.counts.rebuilds, applier.counts.take_overs

    async def work() -> list[tuple[int, int]]:
        return [await start(windows) for windows in (WINDOWS, WINDOWS, SHORT, SHORT, WINDOWS)]

    assert asyncio.run(work()) == [(1, 0), (0, 1), (1, 0), (0, 1), (1, 0)]
    assert format_with(WINDOWS) == STATE_FORMAT != format_with(SHORT)
