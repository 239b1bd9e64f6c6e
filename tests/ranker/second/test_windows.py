"""A remembered window is the one that would be encoded now."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from ranker.second.direct import window_of
from ranker.second.happenings import Course, Happening
from ranker.second.tokens import encode_events, pack_events
from ranker.second.windows import Windows
from tests.ranker.second import made


def check(windows: Windows, course: Course) -> None:
    start, happenings, before_s = window_of(course, made.SIZES.window)
    window = windows.of("u", course)
    tokens = encode_events(happenings, before_s, made.model().vocabulary, made.SIZES)
    assert window.start == start and window.total == course.total
    np.testing.assert_array_equal(window.tokens, tokens)
    assert list(window.packed) == pack_events(tokens)
    assert window.last is (happenings[-1] if happenings else None)


def windows(max_users: int = 10) -> Windows:
    return Windows(made.model().vocabulary, made.SIZES, max_users)


def test_it_follows_a_course_that_grows_wraps_around_and_is_late_now_and_then() -> None:
    draw = np.random.default_rng(3)
    kept, course = windows(), Course()
    check(kept, course)
    time_s = made.START_S
    for offset in range(200):
        time_s += float(draw.exponential(60.0))
        late_s = 300.0 if draw.random() < 0.1 else 0.0
        session = int(draw.integers(0, 3))
        course.add(Happening(time_s - late_s, offset, 0, "i:typed", "a1", "chat", None, session), made.SIZES.window + 1)
        if draw.random() < 0.6:
            check(kept, course)


def test_a_window_that_was_given_out_does_not_change_any_more() -> None:
    kept, course = windows(), made.course(5)
    window = kept.of("u", course)
    before = window.tokens.copy()
    course.add(Happening(made.START_S + 1e6, 99, 0, "i:typed", "a2"), None)
    kept.of("u", course)
    np.testing.assert_array_equal(window.tokens, before)
    assert len(window.packed) == 5


def test_another_course_of_the_same_user_is_encoded_anew() -> None:
    kept = windows()
    check(kept, made.course(6, seed=1))
    check(kept, made.course(6, seed=2))


def test_no_more_users_are_remembered_than_allowed() -> None:
    kept = windows(max_users=2)
    for user in ("a", "b", "c"):
        kept.of(user, made.course(3))
    assert len(kept) == 2
    kept.forget("c")
    assert len(kept) == 1


def test_no_more_events_are_remembered_than_allowed_but_those_of_who_asks() -> None:
    kept = Windows(made.model().vocabulary, made.SIZES, max_events=20)
    for number in range(4):
        check_user(kept, f"u{number}", made.course(8, seed=number))
    assert len(kept) == 2
    kept.forget("u3")
    for number in range(4, 7):
        check_user(kept, f"u{number}", made.course(15, seed=number))
    assert len(kept) == 1


def check_user(windows: Windows, user: str, course: Course) -> None:
    assert windows.of(user, course).total == course.total


def test_a_course_that_left_memory_is_not_held_back_by_its_window() -> None:
    kept, course = windows(), made.course(5)
    kept.of("u", course)
    left = weakref.ref(course)
    del course
    gc.collect()
    assert left() is None
    check(kept, made.course(5))
