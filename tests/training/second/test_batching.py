"""How windows become batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranker.second.config import TrainSecond
from ranker.second.tokens import CandidateTokens, RequestToken, event_dtype
from ranker.second.vocabulary import UNKNOWN
from training.second.batching import (
    BLOCK,
    choose_candidates,
    corrupt_events,
    corrupt_form,
    least_padding,
    parts_of,
    plan_batches,
    size_of,
)
from training.second.dataset import Form, Question, Window

SETTINGS = TrainSecond(batch_tokens=512, negatives=4)


def form(count: int, seed: int = 0) -> Form:
    draw = np.random.default_rng(seed)
    light = draw.normal(size=count).astype(np.float32)
    numbers = np.arange(2, 2 + count, dtype=np.int32)
    candidates = CandidateTokens(numbers, np.zeros(count, np.int32), np.zeros((count, 3), np.float32), light)
    return Form(RequestToken(0.0, 0.0, 0, 0, 0, 0, np.zeros(4, np.float32), np.full(4, 7, np.int32), 0), candidates)


def question(count: int, now_s: float = 0.0) -> Question:
    gains = np.zeros(count)
    gains[1] = 1.0
    known = np.ones(count, np.bool_)
    return Question(now_s, 0, form(count), None, np.zeros((count, 4), np.bool_), known, gains)


def window(events: int, questions: int, last_s: float) -> Window:
    tokens = np.zeros(events, event_dtype(4))
    tokens["action"] = 5
    return Window(tokens, np.full(events, 3, np.int32), tuple(question(9, last_s) for _ in range(questions)), last_s)


def windows(count: int) -> list[Window]:
    draw = np.random.default_rng(1)
    return [window(int(draw.integers(1, 60)), int(draw.integers(0, 9)), float(place)) for place in range(count)]


def test_every_question_before_the_split_is_asked_once_and_every_event_counts_once() -> None:
    made = windows(150)
    parts = parts_of(made, 100.0, 3)
    batches, _ = plan_batches(made, parts, SETTINGS, 0)
    asked = sorted((part.window, place) for batch in batches for part in batch for place in part.questions)
    assert asked == [(number, place) for number in range(100) for place in range(len(made[number].questions))]
    counted = sorted(part.window for batch in batches for part in batch if part.counts)
    assert counted == list(range(150))


def test_a_batch_is_within_its_tokens_and_little_of_it_is_padding() -> None:
    made = windows(500)
    batches, waste = plan_batches(made, parts_of(made, 1e9, 3), SETTINGS, 0)
    for batch in batches:
        sizes = np.array([size_of(part, made, 5) for part in batch])
        assert len(batch) == 1 or sizes.max(axis=0).sum() * len(batch) <= 512
    assert waste.share < 0.2


@pytest.mark.parametrize(("longest", "most"), [(256, 0.16), (30, 0.2)])
def test_with_the_shipped_settings_little_is_padding_however_questions_and_lengths_go_together(
    longest: int, most: float
) -> None:
    draw = np.random.default_rng(longest)
    made = [
        window(int(events), int(min(events // 4, draw.integers(0, 12))), float(place))
        for place, events in enumerate(draw.integers(1, longest + 1, 1024))
    ]
    _, waste = plan_batches(made, parts_of(made, 1e9, 120), TrainSecond(), 0)
    assert waste.share < most


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=80), st.integers(1, 1000))
def test_every_row_is_in_one_batch_and_the_waste_is_what_is_left(sizes: list[tuple[int, int]], limit: int) -> None:
    batches, waste = least_padding(sizes, limit)
    assert sorted(row for rows in batches for row in rows) == list(range(len(sizes)))
    padded = [np.array([sizes[row] for row in rows]).max(axis=0).sum() * len(rows) for rows in batches]
    assert all(len(rows) == 1 or tokens <= limit for rows, tokens in zip(batches, padded, strict=True))
    assert (waste.tokens, waste.padding) == (sum(padded), sum(padded) - sum(map(sum, sizes)))


def test_batches_go_in_order_of_time_from_block_to_block() -> None:
    made = windows(3 * BLOCK)
    batches, _ = plan_batches(made, parts_of(made, 1e9, 9), SETTINGS, 0)
    blocks = [[part.window // BLOCK for part in batch] for batch in batches]
    assert [block[0] for block in blocks] == sorted(block[0] for block in blocks)


def test_another_epoch_goes_another_way_and_the_same_one_the_same() -> None:
    made = windows(100)
    parts = parts_of(made, 1e9, 3)
    assert plan_batches(made, parts, SETTINGS, 1) == plan_batches(made, parts, SETTINGS, 1)
    assert plan_batches(made, parts, SETTINGS, 1)[0] != plan_batches(made, parts, SETTINGS, 2)[0]


@pytest.mark.parametrize("count", [3, 5, 6, 40])
def test_the_useful_are_always_among_the_candidates_and_half_of_the_others_are_the_best_by_light(count: int) -> None:
    asked = question(count)
    rows = choose_candidates(asked, asked.plain, 4, np.random.default_rng(0))
    assert 1 in rows
    assert len(rows) == min(count, 5)
    best = [row for row in np.argsort(-asked.plain.candidates.light).tolist() if row != 1][:2]
    assert set(best) <= set(rows.tolist())


def test_some_values_become_unknown_so_that_the_unknown_is_trained() -> None:
    unknown = TrainSecond(unknown=0.5, token_dropout=0.0)
    tokens = np.zeros(400, event_dtype(4))
    tokens["action"] = 5
    found = corrupt_events(tokens, unknown, np.random.default_rng(0))
    assert 100 < int((found["action"] == UNKNOWN).sum()) < 300
    assert set(found["kind"].tolist()) == {0}
    assert set(tokens["action"].tolist()) == {5}
    changed = corrupt_form(form(100), np.arange(100), unknown, np.random.default_rng(0))
    assert 20 < int((changed.candidates.actions == UNKNOWN).sum()) < 80
