"""From a log to each user's items in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.errors import LogError
from features.events import Event
from tests.training.logs import did, forget, write_log
from training.last_item.errors import NothingToJudge
from training.last_item.sequences import Sequences, from_lists, read_sequences
from training.last_item.split import split_last


def items_of(sequences: Sequences) -> dict[str, list[str]]:
    rows = ([sequences.items[code] for code in row] for row in sequences.rows.rows())
    return dict(zip(sequences.users, rows, strict=True))


def test_items_go_by_time_and_equal_times_by_their_place_in_the_log(tmp_path: Path) -> None:
    events = [did("c", 9.0), did("a", 1.0), did("b", 1.0), did("d", 1.0)]
    assert items_of(read_sequences(write_log(tmp_path, events))) == {"u": ["a", "b", "d", "c"]}


def test_an_id_that_comes_twice_counts_once(tmp_path: Path) -> None:
    events = [did("a", 1.0, id="x"), did("a", 1.0, id="x"), did("b", 2.0)]
    read = read_sequences(write_log(tmp_path, events))
    assert items_of(read) == {"u": ["a", "b"]}
    assert read.counts["duplicate"] == 1


def test_the_same_item_twice_is_two_events(tmp_path: Path) -> None:
    assert items_of(read_sequences(write_log(tmp_path, [did("a", 1.0), did("a", 2.0)]))) == {"u": ["a", "a"]}


def test_what_was_before_a_wish_to_be_forgotten_is_gone(tmp_path: Path) -> None:
    events: list[Event] = [did("a", 1.0), did("b", 2.0), forget(3.0), did("c", 4.0)]
    read = read_sequences(write_log(tmp_path, events))
    assert items_of(read) == {"u": ["c"]}
    assert read.counts["forgotten_interactions"] == 2


def test_interactions_without_an_action_are_counted_and_passed_over(tmp_path: Path) -> None:
    read = read_sequences(write_log(tmp_path, [did(None, 1.0), did("a", 2.0)]))
    assert items_of(read) == {"u": ["a"]}
    assert read.counts["interaction_without_action"] == 1


def test_a_folder_without_a_log_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="nowhere"):
        read_sequences(tmp_path / "nowhere")


def test_the_last_item_is_the_answer_and_the_one_before_validates() -> None:
    split = split_last(from_lists({"u": list("abcd"), "v": list("abc")}))
    assert split.vocabulary == ("a", "b")
    assert [list(row) for row in split.train.rows()] == [[1, 2], [1]]
    assert [list(row) for row in split.validation.histories.rows()] == [[1, 2], [1]]
    assert split.validation.answers.tolist() == [0, 2]
    assert [list(row) for row in split.test.histories.rows()] == [[1, 2, 0], [1, 2]]
    assert split.test.answers.tolist() == [0, 0]


def test_users_with_fewer_than_three_items_are_learned_from_and_not_judged() -> None:
    split = split_last(from_lists({"u": list("abc"), "v": list("xy"), "w": ["z"]}))
    assert split.test.users.tolist() == [0]
    assert split.train_only == 2
    assert set(split.vocabulary) == {"a", "x", "y", "z"}


def test_without_a_user_to_judge_the_error_says_what_there_is() -> None:
    with pytest.raises(NothingToJudge, match="2 users have 3 in all, the longest history 2"):
        split_last(from_lists({"u": list("ab"), "v": ["a"]}))


def test_an_empty_log_is_nothing_to_judge(tmp_path: Path) -> None:
    with pytest.raises(NothingToJudge, match="0 users"):
        split_last(read_sequences(write_log(tmp_path, [])))


def test_the_fingerprint_follows_what_is_learned_from() -> None:
    first = split_last(from_lists({"u": list("abcd")}))
    assert split_last(from_lists({"u": list("abcd")})).fingerprint == first.fingerprint
    assert split_last(from_lists({"u": list("bacd")})).fingerprint != first.fingerprint
    assert split_last(from_lists({"w": list("abcd")})).fingerprint != first.fingerprint
    assert split_last(from_lists({"u": list("abcx")})).fingerprint == first.fingerprint


def test_a_vocabulary_from_elsewhere_makes_other_items_unknown() -> None:
    split = split_last(from_lists({"u": list("abcd")}), ("b", "d"))
    assert list(split.train.codes) == [0, 1]
    assert split.test.answers.tolist() == [2]
