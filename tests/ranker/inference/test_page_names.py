"""Remembered names of pages are those that hashing the whole window gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranker.inference.memory_errors import InvalidSize
from ranker.inference.page_hash import Scope, names
from ranker.inference.page_names import PageNames

SCOPE = Scope("m@1", "s", "int8", "u")
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 1), st.lists(st.sampled_from([b"a", b"b"]))),
    max_size=12,
)


@given(STEPS)
def test_names_are_as_hashed_anew_however_windows_grow_change_and_move(
    steps: list[tuple[int, int, int, list[bytes]]],
) -> None:
    remembered = PageNames(page_tokens=3, max_events=9)
    windows: dict[str, list[bytes]] = {}
    for user, start, model, events in steps:
        scope = replace(SCOPE, user=f"u{user}", model=f"m@{model}")
        window = [*windows.get(scope.user, ()), *events] if len(events) % 2 else events
        windows[scope.user] = window
        assert remembered.of(scope, start, window) == names(scope, start, window, 3)
        assert len(remembered) <= 3


def test_a_user_who_is_forgotten_is_not_remembered() -> None:
    remembered = PageNames(page_tokens=2)
    remembered.of(SCOPE, 0, [b"a", b"b"])
    remembered.forget("u")
    assert len(remembered) == 0


def test_an_event_that_is_not_bytes_is_refused_after_known_ones_too() -> None:
    remembered = PageNames(page_tokens=2)
    remembered.of(SCOPE, 0, [b"a", b"b"])
    with pytest.raises(InvalidSize, match="must be bytes"):
        remembered.of(SCOPE, 0, [b"a", b"b", "c"])  # type: ignore[list-item]


def test_who_was_asked_about_longest_ago_leaves() -> None:
    remembered = PageNames(page_tokens=2, max_events=4)
    for user in ("a", "b", "a", "c"):
        remembered.of(replace(SCOPE, user=user), 0, [b"1", b"2"])
    remembered.forget("b")
    assert len(remembered) == 2
    remembered.of(SCOPE, 0, [b"1"] * 9)
    assert len(remembered) == 1
