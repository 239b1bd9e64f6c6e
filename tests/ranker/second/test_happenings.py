"""Courses: what the log's events become, in which order, and what is kept of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.events import Event
from features.tokens import hash_terms
from ranker.inference.page_hash import window_start
from ranker.second.happenings import Course, Courses, Happening, session_hash, terms_of
from tests.training.logs import answered, did, forget, ranked


def courses(*events: Event, keep: int | None = None) -> Courses:
    made = Courses(keep)
    for offset, event in enumerate(events):
        made.apply(offset, event)
    return made


def kinds(made: Courses, user: str = "u") -> list[tuple[str, str | None]]:
    return [(each.kind, each.action) for each in made.of(user).kept]


def test_interactions_offers_and_what_followed_are_happenings() -> None:
    made = courses(
        did(None, 0, type="typed", text="Hello there", session="s"),
        ranked("r", 1, "ab", context={"surface": "chat"}, session="s"),
        answered("r", "seen", 2, "a"),
        answered("r", "complete", 3, "b"),
        did("c", 4, type="used", target="image:42"),
    )
    assert kinds(made) == [
        ("i:typed", None), ("offered", "a"), ("accepted", "b"), ("completed", "b"), ("i:used", "c"),
    ]  # fmt: skip
    first, offer, taken, _, used = made.of("u").kept
    assert terms_of(first).tolist() == hash_terms(["hello", "there"]).tolist()
    assert (offer.surface, taken.surface, used.target) == ("chat", "chat", "image")
    assert first.session == offer.session == taken.session == session_hash("u", "s")
    assert set(terms_of(offer).tolist()) == set(hash_terms(["o:a", "o:b"]).tolist())


def test_an_outcome_counts_once_and_an_accident_is_a_dismissal() -> None:
    made = courses(
        ranked("r", 0), answered("r", "accept", 1), answered("r", "accept", 2, id="again"),
        answered("r", "undo", 3),
    )  # fmt: skip
    assert kinds(made) == [("offered", "a"), ("accepted", "a"), ("dismissed", "a")]


def test_the_same_event_twice_is_one_happening() -> None:
    assert kinds(courses(did("a", 0, id="x"), did("a", 0, id="x"))) == [("i:did", "a")]


def test_feedback_on_an_unknown_or_old_ranking_and_unseen_traffic_are_nothing() -> None:
    made = courses(
        answered("none", "accept", 0), ranked("r", 1), answered("r", "accept", 1 + 8 * 86400),
        ranked("s", 2, traffic="shadow"), answered("s", "accept", 3),
    )  # fmt: skip
    assert kinds(made) == [("offered", "a")]


def test_an_empty_list_is_no_offer() -> None:
    assert kinds(courses(ranked("r", 0, ""))) == []


def test_who_asks_to_be_forgotten_begins_anew() -> None:
    made = courses(did("a", 0), forget(1), did("b", 2))
    assert kinds(made) == [("i:did", "b")]
    assert made.of("u").total == 1


def test_a_late_event_is_put_where_it_belongs_and_the_old_list_stays_as_it_was() -> None:
    made = courses(did("a", 10), did("b", 20))
    before = made.of("u").kept
    made.apply(2, did("c", 15))
    assert kinds(made) == [("i:did", "a"), ("i:did", "c"), ("i:did", "b")]
    assert [each.action for each in before] == ["a", "b"]


def test_equal_times_go_by_offset() -> None:
    assert kinds(courses(did("b", 5), did("a", 5), did("c", 5))) == [("i:did", "b"), ("i:did", "a"), ("i:did", "c")]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=120), st.sampled_from([4, 8, 16]))
def test_the_window_is_a_pure_function_of_the_history_whatever_was_dropped(times: list[int], longest: int) -> None:
    bounded, whole = Course(), Course()
    for offset, time_s in enumerate(sorted(times)):
        happening = Happening(float(time_s), offset, 0, "i:did", str(offset))
        bounded.add(happening, longest + 1)
        whole.add(happening, None)
    start = window_start(len(times), longest)
    assert bounded.total == whole.total == len(times)
    assert bounded.window(start) == whole.window(start)
    assert len(bounded.kept) <= 2 * (longest + 1)
    assert (
        bounded.window(start)[0]
        == [Happening(float(t), i, 0, "i:did", str(i)) for i, t in enumerate(sorted(times))][start:]
    )


def test_what_is_no_longer_kept_cannot_be_asked_for() -> None:
    made = courses(*(did("a", second) for second in range(50)), keep=4)
    with pytest.raises(ValueError, match="no longer kept"):
        made.of("u").window(0)


def test_terms_are_bounded() -> None:
    made = courses(did(None, 0, type="typed", text=" ".join(f"w{letter}" for letter in map(chr, range(97, 123))) * 40))
    assert len(terms_of(made.of("u").kept[0])) <= 64
    assert np.frombuffer(made.of("u").kept[0].terms, "<u4").dtype == np.uint32
