"""What feedback counts as: each outcome once, accidents as accidents."""

from __future__ import annotations

import pytest

from features.events import FeedbackEvent, from_seconds
from features.outcomes import WINDOWS, Outcome, settle
from features.rows import OfferedItem, RankingRow
from training.labels import grade

START_S = 1_700_000_000.0


def feedback(kind: str, at_s: float, action: str = "a", target: str | None = None) -> FeedbackEvent:
    time = from_seconds(START_S + at_s)
    return FeedbackEvent(id="1", time=time, ranking="r", user="u", type=kind, action=action, target=target)


def ranking() -> RankingRow:
    return RankingRow(
        START_S, "u", None, [], [OfferedItem("a", "image:1"), OfferedItem("b", None), OfferedItem("a", "image:2")]
    )


W = WINDOWS.accidental_s
BOTH = ("accepted", "completed")


@pytest.mark.parametrize(
    ("given", "counted", "useful"),
    [
        ([("seen", 1), ("seen", 2)], ["seen"], 0),
        ([("accept", 1)], ["accepted"], 1),
        ([("accept", 1), ("accept", 9)], ["accepted"], 1),
        ([("complete", 1)], ["accepted", "completed"], 2),
        ([("accept", 1), ("complete", 5), ("complete", 6)], ["accepted", "completed"], 2),
        ([("dismiss", 1), ("dismiss", 2)], ["dismissed"], 0),
        ([("undo", 1)], [], 0),
        ([("accept", 1), ("undo", 1 + W)], ["accepted", "undone"], 0),
        ([("accept", 1), ("dismiss", 1 + W)], ["accepted", "undone"], 0),
        ([("accept", 1), ("undo", 2), ("undo", 3), ("dismiss", 4)], ["accepted", "undone"], 0),
        ([("accept", 1), ("undo", 1.001 + W)], ["accepted"], 1),
        ([("accept", 1), ("dismiss", 1.001 + W)], ["accepted", "dismissed"], 0),
        ([("accept", 1), ("complete", 2), ("undo", 3)], ["accepted", "completed"], 2),
        ([("accept", 1), ("complete", 2), ("dismiss", 3)], ["accepted", "completed", "dismissed"], 2),
        ([("accept", 5), ("undo", 4)], ["accepted"], 1),
        ([("dismiss", 5), ("accept", 4)], ["dismissed", "accepted"], 0),
        ([("accept", 1), ("undo", 2), ("accept", 3)], ["accepted", "undone", "accepted"], 1),
        ([("accept", 1), ("undo", 2), ("accept", 2)], ["accepted", "undone", "accepted"], 1),
        ([("accept", 1), ("undo", 2), ("accept", 1.5)], ["accepted", "undone"], 0),
        ([("accept", 1), ("undo", 2), ("accept", 3), ("undo", 4)], ["accepted", "undone"] * 2, 0),
        ([("accept", 1), ("undo", 2), ("accept", 3), ("undo", 3.001 + W)], ["accepted", "undone", "accepted"], 1),
        ([("accept", 1), ("undo", 2), ("complete", 30)], ["accepted", "undone", "accepted", "completed"], 2),
        ([("accept", 1), ("undo", 2), ("complete", 1.5)], ["accepted", "undone", "accepted", "completed"], 2),
        ([("accept", 1), ("undo", 2), ("complete", 3), ("undo", 4)], ["accepted", "undone", *BOTH], 2),
    ],
)
def test_what_follows_an_offer_counts_once(given: list[tuple[str, float]], counted: list[str], useful: int) -> None:
    row = ranking()
    found = [outcome.kind for kind, at_s in given for outcome in settle(row, feedback(kind, at_s, "b"))]
    assert found == counted
    assert grade(row.items[1]) == useful
    assert [grade(item) for item in row.items[::2]] == [0, 0]


def test_a_target_tells_two_offers_of_an_action_apart() -> None:
    row = ranking()
    assert settle(row, feedback("accept", 1, "a", "image:2")) == [Outcome("accepted", "a")]
    assert [grade(item) for item in row.items] == [0, 0, 1]
    assert settle(row, feedback("accept", 1, "a", "image:1")) == [Outcome("accepted", "a")]


def test_a_target_that_was_not_offered_falls_back_to_the_action() -> None:
    row = ranking()
    assert settle(row, feedback("accept", 1, "a", "image:9")) == [Outcome("accepted", "a")]
    assert [grade(item) for item in row.items] == [1, 0, 0]


def test_what_was_not_offered_counts_for_nothing() -> None:
    assert settle(ranking(), feedback("complete", 1, "c")) == []
