"""Grades of what was offered, from what followed; forgotten users leave none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from features.events import Event, RankedItem, RankingEvent
from features.label_config import Gains, LabelSettings, OutcomeWindows
from tests.training.logs import answered, at, did, forget, ranked
from training.labels import Labels, read_labels


def labels_of(*events: Event) -> Labels:
    return read_labels(enumerate(events))


def grades(events: Sequence[Event]) -> dict[str, float]:
    graded = labels_of(*events).grades["u", "r"]
    return {action: useful for (action, _), useful in graded.items()}


@pytest.mark.parametrize(
    ("feedback", "useful"),
    [
        ([], 0),
        ([("seen", 1)], 0),
        ([("accept", 1)], 1),
        ([("accept", 1), ("complete", 9)], 2),
        ([("complete", 9)], 2),
        ([("accept", 1), ("undo", 5)], 0),
        ([("accept", 1), ("dismiss", 11)], 0),
        ([("accept", 1), ("undo", 12)], 1),
        ([("dismiss", 1)], -1),
        ([("accept", 1), ("dismiss", 30)], 0),
        ([("dismiss", 1), ("complete", 30)], 2),
        ([("accept", 1), ("undo", 5), ("dismiss", 30)], -1),
    ],
)
def test_a_grade_says_how_useful_an_offer_was(feedback: list[tuple[str, float]], useful: int) -> None:
    assert grades([ranked("r", 0), *(answered("r", kind, at_s) for kind, at_s in feedback)]) == {"a": useful, "b": 0}


def test_targets_have_grades_of_their_own() -> None:
    items = [RankedItem(action="a", target=f"image:{number}", position=number) for number in (1, 2)]
    ranking = RankingEvent(id="r", time=at(0), user="u", items=items)
    second = msgspec.structs.replace(answered("r", "accept", 1), target="image:2")
    assert labels_of(ranking, second).grades["u", "r"] == {("a", "image:1"): 0, ("a", "image:2"): 1}


def test_what_cannot_be_used_is_counted() -> None:
    labels = labels_of(
        ranked("r", 0),
        ranked("r", 0, "xy"),
        ranked("p", 0, traffic="probe"),
        answered("r", "accept", 1, id="f"),
        answered("r", "complete", 2, id="f"),
        answered("never", "accept", 1),
        answered("p", "accept", 1),
        answered("r", "accept", 3, user="v"),
        answered("r", "accept", 4),
        answered("r", "accept", 4, action="z"),
    )
    assert labels.grades == {("u", "r"): {("a", None): 1, ("b", None): 0}}
    expected = {
        "events": 10,
        "duplicate": 2,
        "orphan_feedback": 3,
        "no_new_outcome": 2,
        "rankings": 1,
        "useful_rankings": 1,
        "offered": 2,
        "accepts": 1,
        "feedback_not_offered": 1,
    }
    assert +labels.counts == expected


def test_two_users_may_use_the_same_ranking_id() -> None:
    labels = labels_of(ranked("r", 0), ranked("r", 0, user="v"), answered("r", "accept", 1, user="v"))
    assert labels.grades == {("u", "r"): {("a", None): 0, ("b", None): 0}, ("v", "r"): {("a", None): 1, ("b", None): 0}}


def test_a_probe_does_not_take_an_id_from_a_ranking_that_counts() -> None:
    assert labels_of(ranked("r", 0, traffic="probe"), ranked("r", 1)).counts["rankings"] == 1


def test_who_is_forgotten_leaves_no_label_of_what_came_before() -> None:
    labels = labels_of(
        *(ranked("r", 0), answered("r", "accept", 1), did("a", 2)),
        *(ranked("r", 0, user="v"), answered("r", "accept", 1, user="v")),
        forget(3),
        *(ranked("r2", 4), answered("r", "complete", 5), answered("r2", "accept", 5), did("b", 6)),
    )
    assert set(labels.grades) == {("v", "r"), ("u", "r2")}
    assert labels.forgotten == {"u": 5}
    assert (labels.counts["own_actions"], labels.counts["orphan_feedback"]) == (1, 1)


def test_own_actions_serve_only_where_nothing_offered_was_ever_useful() -> None:
    assert labels_of(did("a", 0), ranked("r", 1)).learn_from_own_actions
    assert not labels_of(did("a", 0), ranked("r", 1), answered("r", "accept", 2)).learn_from_own_actions
    assert not labels_of(did(None, 0), ranked("r", 1)).learn_from_own_actions
    assert not labels_of(did("a", 0), forget(1)).learn_from_own_actions


def test_doing_the_same_by_oneself_afterwards_makes_an_offer_reused() -> None:
    for own_at_s, useful in ((5.0, 2), (9.0, 2), (9.5, 3), (9.0 + 7 * 86400.0, 3), (9.1 + 7 * 86400.0, 2)):
        events: list[Event] = [
            ranked("r", 0),
            answered("r", "accept", 4),
            answered("r", "complete", 9),
            did("a", own_at_s),
        ]
        assert grades(events)["a"] == useful, own_at_s
    assert grades([ranked("r", 0), answered("r", "accept", 1), did("a", 5)])["a"] == 2
    assert grades([ranked("r", 0), did("a", 5)])["a"] == 0, "what was not useful cannot be reused"
    undone: list[Event] = [ranked("r", 0), answered("r", "accept", 1), answered("r", "undo", 2), did("a", 5)]
    assert grades(undone)["a"] == 0
    other: list[Event] = [ranked("r", 0), answered("r", "complete", 1), did("b", 5), did("a", 5, user="v")]
    assert grades(other) == {"a": 2, "b": 0}


def test_the_order_of_lines_does_not_decide_what_is_reused() -> None:
    events: list[Event] = [did("a", 50), ranked("r", 0), answered("r", "complete", 9)]
    assert grades(events)["a"] == 3


def test_late_feedback_is_counted_and_makes_no_label() -> None:
    labels = labels_of(ranked("r", 0), answered("r", "accept", 5), answered("r", "complete", 86401))
    assert labels.grades["u", "r"] == {("a", None): 1, ("b", None): 0}
    assert (labels.counts["late_feedback"], labels.counts["completions"]) == (1, 0)


def test_windows_and_gains_are_what_they_are_set_to() -> None:
    events: list[Event] = [
        ranked("r", 0, "abc"),
        answered("r", "accept", 1),
        answered("r", "undo", 4),
        answered("r", "dismiss", 5, "b"),
    ]
    events += [answered("r", "complete", 6, "c"), did("c", 7)]
    gains = Gains(dismissed=-0.5, accidental=-0.25, completed=4.0, reused=0.5)
    labels = read_labels(enumerate(events), LabelSettings(gains=gains))
    assert list(labels.grades["u", "r"].values()) == [-0.25, -0.5, 4.5]
    labels = read_labels(enumerate(events), LabelSettings(reuse_s=0.5), OutcomeWindows(accidental_s=2.0))
    assert list(labels.grades["u", "r"].values()) == [1.0, -1.0, 2.0]


def test_where_the_app_says_what_was_seen_the_rest_is_unknown() -> None:
    chat: dict[str, Any] = {"context": {"surface": "chat"}}
    home: dict[str, Any] = {"context": {"surface": "home"}}
    labels = labels_of(
        *(ranked("early", 0, **chat), answered("early", "accept", 1)),
        *(ranked("r", 10, "abc", **chat), answered("r", "seen", 11), answered("r", "complete", 12, "b")),
        *(ranked("blind", 20, **chat), ranked("other", 30, **home)),
    )
    a, b, c = (("a", None), ("b", None), ("c", None))
    assert labels.unseen == {("u", "r"): {c}, ("u", "blind"): {a, b}}, "not before it began, nor on another surface"
    taken = read_labels(
        enumerate([ranked("r", 10, **chat), answered("r", "seen", 11)]), LabelSettings(unseen="ignored")
    )
    assert (taken.unseen, taken.counts["unseen"]) == ({}, 1)


def test_a_pair_that_was_listed_twice_keeps_what_followed() -> None:
    assert grades([ranked("r", 0, "aba"), answered("r", "complete", 1)]) == {"a": 2, "b": 0}
