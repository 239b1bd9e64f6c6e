"""Evidence of what followed what, and how it is mixed in."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.last_item.blend import (
    Blend,
    choose_blend,
    clearly_best,
    inside,
    mixed,
    repeat_log_odds,
    repeated,
    sources,
)
from training.last_item.foretell import Foretell
from training.last_item.sequences import Ragged, from_lists
from training.last_item.split import Queries, split_last
from training.last_item.start import near_embeddings
from training.last_item.transitions import Floats32, TransitionSettings, count_transitions, popularity

ROWS = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=8), min_size=1, max_size=6)


def ragged(rows: list[list[int]]) -> Ragged:
    starts = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    codes = np.array([code for row in rows for code in row], np.int32)
    return Ragged(starts, codes, np.zeros(len(codes)))


def by_hand(rows: list[list[int]], history: list[int], settings: TransitionSettings) -> np.ndarray:
    """The formula of the module's docstring, term by term."""
    counts: dict[tuple[int, int], float] = defaultdict(float)
    for row in rows:
        for at, one in enumerate(row):
            for distance in range(1, settings.reach + 1):
                if at + distance < len(row) and row[at + distance] != one:
                    counts[one, row[at + distance]] += 1 / distance
                    counts[row[at + distance], one] += settings.backward / distance
    shares = popularity(ragged(rows), 5)
    out = [sum(counts[one, other] for other in range(6)) for one in range(6)]
    into = [sum(counts[one, other] for one in range(6)) for other in range(6)]
    scores = np.zeros(6)
    for age, one in enumerate(reversed(history[-settings.last :])):
        for other in range(6):
            if counts[one, other]:
                loud = (out[one] + settings.doubt) ** settings.evening * into[other] ** settings.damping
                scores[other] += settings.decay**age * counts[one, other] / loud
    if not scores.sum():
        return shares
    return np.asarray((1 - settings.smoothing) * scores / scores.sum() + settings.smoothing * shares)


@given(ROWS, st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_transitions_are_the_formula_counted_by_hand(rows: list[list[int]], history: list[int]) -> None:
    settings = TransitionSettings(reach=3, backward=0.7, last=4, decay=0.5)
    found = count_transitions(ragged(rows), 5, settings).probabilities(ragged([history]))[0]
    assert np.allclose(found, by_hand(rows, history, settings), atol=1e-5)
    assert np.isclose(found.sum(), 1.0, atol=1e-5)


def test_embeddings_begin_near_each_other_for_items_that_happen_near_the_same_others() -> None:
    rows = [[1, 3, 4], [2, 3, 4], [5, 6, 7], [8, 6, 7]] * 3
    found = near_embeddings(ragged(rows), 8, width=4, spread=0.1, seed=0)
    assert found.shape == (9, 4) and np.isfinite(found).all()
    one, two, five = (found[item] / np.linalg.norm(found[item]) for item in (1, 2, 5))
    assert one @ two > 0.9 > 0.5 > abs(one @ five)
    assert np.array_equal(found, near_embeddings(ragged(rows), 8, width=4, spread=0.1, seed=0))


@pytest.mark.parametrize("rows", [[[1], [2]], [[1, 1]], [[1, 2]]], ids=["no pairs", "only repeats", "one pair"])
def test_embeddings_begin_at_random_where_nothing_is_known(rows: list[list[int]]) -> None:
    found = near_embeddings(ragged(rows), 2, width=8, spread=0.1, seed=0)
    assert found.shape == (3, 8) and np.isfinite(found).all()


def test_a_history_that_says_nothing_gets_the_popularity() -> None:
    transitions = count_transitions(ragged([[1, 2], [3]]), 3, TransitionSettings())
    assert np.array_equal(transitions.probabilities(ragged([[3], [0]])), np.tile(transitions.popularity, (2, 1)))


def test_repeats_are_as_likely_as_they_turned_out() -> None:
    again = np.array([True] * 30 + [False] * 70)
    raised = repeat_log_odds(np.full(100, 0.1), again)
    odds = np.exp(raised) * 0.1 / 0.9
    assert odds / (1 + odds) == pytest.approx(30.5 / 101)


def test_where_nothing_repeats_items_of_the_history_come_last() -> None:
    histories = ragged([[1, 2, 1]])
    scores = mixed(np.full((1, 5), 0.2, np.float32), None, Blend(repeat=-9.0), histories)
    assert scores[0, 1] == scores[0, 2] < scores[0, 3] - 8.0
    assert [row.tolist() for row in inside(histories)] == [[0, 0], [1, 2]]


def test_repeated_answers_are_found() -> None:
    queries = Queries(ragged([[1, 2], [3], [0]]), np.array([2, 1, 0], np.int32), np.arange(3))
    assert repeated(queries).tolist() == [True, False, True]


def even(histories: Ragged) -> Floats32:
    found = np.full((len(histories), 7), 1 / 6, np.float32)
    found[:, 0] = 0.0
    return found


def knowing_it_all(queries: Queries) -> Foretell:
    """Knows the answer by the history, which nobody else has, but is not sure of it."""
    answers = {
        tuple(row.tolist()): answer for row, answer in zip(queries.histories.rows(), queries.answers, strict=True)
    }

    def foretell(histories: Ragged) -> Floats32:
        found = np.full((len(histories), 31), 1 / 31, np.float32)
        for row, history in enumerate(histories.rows()):
            found[row, answers[tuple(history.tolist())]] *= 1.2
        return found

    return foretell


def test_transitions_get_weight_where_the_next_item_follows_from_the_last_and_none_where_it_does_not() -> None:
    rng = np.random.default_rng(0)
    follows = split_last(from_lists({f"u{n}": [str((n + k) % 6) for k in range(6)] for n in range(60)}))
    chance = split_last(from_lists({f"u{n}": [str(k) for k in rng.permutation(30)[:7]] for n in range(200)}))
    strong = choose_blend(even, follows.train, follows.validation, 6)
    assert strong.blend.weight == 1.0
    knowing = choose_blend(knowing_it_all(chance.validation), chance.train, chance.validation, 30)
    assert knowing.blend.weight < 1.0
    assert knowing.tried["network^1 transitions^0"] == 1.0


def test_a_blend_without_weight_asks_the_network_alone() -> None:
    split = split_last(from_lists({"u": list("abcdef")}))
    scores = sources(even, None, Blend())(split.test.histories)
    assert np.allclose(np.exp(scores), even(split.test.histories))


def test_a_choice_must_be_clearly_better_than_the_first_and_the_more_so_where_more_is_asked() -> None:
    first = np.zeros(100)
    little, much = np.tile([1.0, -0.9], 50), np.tile([1.0, -0.7], 50)
    assert clearly_best([first, little], [0.0, 1.0]) == 0
    assert clearly_best([first, little, much], [0.0, 1.0, 1.0]) == 2
    assert clearly_best([first, much], [0.0, 2.0]) == 0
    assert clearly_best([first, little - 1.0], [0.0, 0.0]) == 0


def test_the_mixture_is_the_product_of_the_powers() -> None:
    model, evidence = (np.array([[0.0, *shares]], np.float32) for shares in ((0.5, 0.3, 0.2), (0.1, 0.1, 0.8)))
    found = np.exp(mixed(model, evidence, Blend(0.5, 2.0), ragged([[0]])))[0, 1:]
    wanted = np.array([0.5, 0.3, 0.2]) ** 0.5 * np.array([0.1, 0.1, 0.8]) ** 2
    assert np.allclose(found, wanted / wanted.sum(), atol=1e-6)
