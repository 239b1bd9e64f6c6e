"""Labels and the online counters come to the same sums, whatever the log: one rule decides for both."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features import rows
from features.cells import ACCEPTED, COMPLETED, DISMISSED, OFFERED, SEEN, SELF
from features.events import COUNTED_TRAFFIC, Event, InteractionEvent, RankingEvent
from features.label_config import OutcomeWindows
from features.outcomes import WINDOWS
from features.population import EVERYTHING
from features.state import RowSet, State
from tests.features.streams import ACTIONS, EventStream
from training.labels import LABELS, LabelReader, completed, dismissed, seen

WINDOW_CHOICES = st.builds(
    OutcomeWindows,
    accidental_s=st.sampled_from([0.0, 10.0, 300.0]),
    attribution_s=st.sampled_from([1.0, 60.0, 86400.0, 7 * 86400.0]),
)


def counted(events: list[Event], windows: OutcomeWindows) -> tuple[dict[str, list[float]], Counter[str]]:
    """What the online counters hold over everything, by kind, and what they skipped."""
    state, rowset = State(windows=windows), RowSet()
    for offset, event in enumerate(events):
        state.apply(offset, event, rowset)
    cells = state.population.at().gather(EVERYTHING, ACTIONS)
    columns = {"seen": SEEN, "accepted": ACCEPTED, "completed": COMPLETED, "dismissed": DISMISSED}
    named = {**columns, "offered": OFFERED, "self": SELF}
    return {name: cells[:, column].tolist() for name, column in named.items()}, state.skipped


def labelled(events: list[Event], windows: OutcomeWindows) -> tuple[dict[str, list[float]], LabelReader]:
    """The same sums, as the labels' reader tells them."""
    reader, sums = LabelReader(LABELS, windows), Counter[tuple[str, str]]()
    for offset, event in enumerate(events):
        before = reader.counts["duplicate"]
        for outcome in reader.take(offset, event):
            kind, sign = ("accepted", -1) if outcome.kind == "undone" else (outcome.kind, 1)
            sums[kind, outcome.action] += sign
        if reader.counts["duplicate"] > before:
            continue
        if isinstance(event, RankingEvent) and event.traffic in COUNTED_TRAFFIC:
            sums.update(("offered", item.action) for item in event.items)
        elif isinstance(event, InteractionEvent) and event.action is not None:
            sums["self", event.action] += 1
    kinds = ("seen", "accepted", "completed", "dismissed", "offered", "self")
    return {kind: [sums[kind, action] for action in ACTIONS] for kind in kinds}, reader


def assert_the_same(events: list[Event], windows: OutcomeWindows) -> LabelReader:
    online, skipped = counted(events, windows)
    offline, reader = labelled(events, windows)
    assert offline == online
    for reason in ("duplicate", "no_new_outcome"):
        assert reader.counts[reason] == skipped[reason], reason
    # Online a ranking is gone after its life; here it is known, and the feedback late.
    gone = sum(reader.counts[reason] - skipped[reason] for reason in ("orphan_feedback", "late_feedback"))
    assert gone == 0
    return reader


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 20.0, 400.0, 20_000.0]), WINDOW_CHOICES)
def test_counters_and_labels_say_the_same_about_any_stream(seed: int, step_s: float, windows: OutcomeWindows) -> None:
    assert_the_same(EventStream(seed, users=4, step_s=step_s).take(250), windows)


@pytest.mark.parametrize("seed", range(3))
def test_a_ranking_beyond_those_that_are_remembered_takes_no_feedback_in_either(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_RANKINGS", 2)
    few = assert_the_same(EventStream(seed, users=2, step_s=1.0).take(400), WINDOWS)
    monkeypatch.undo()
    many = assert_the_same(EventStream(seed, users=2, step_s=1.0).take(400), WINDOWS)
    assert few.counts["orphan_feedback"] > many.counts["orphan_feedback"]


@pytest.mark.parametrize("seed", range(3))
def test_what_items_end_up_with_adds_up_to_what_was_counted(seed: int) -> None:
    events = [event for event in EventStream(seed, step_s=20.0).take(500) if event.__struct_config__.tag != "forget"]
    reader = assert_the_same(events, WINDOWS)
    bits = [each for by_pair in reader.labels().bits.values() for each in by_pair.values()]
    assert sum(map(completed, bits)) == reader.counts["completions"] > 0
    assert sum(map(dismissed, bits)) == reader.counts["dismissals"] > 0
    assert sum(map(seen, bits)) == reader.counts["seen"] > 0
