"""Popularity, Markov and the linear model against a few lines of counting."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from features.events import Context, from_seconds
from features.known import Known, Moment
from features.population import Population
from features.rows import Done, SessionRow, Token
from tests.training.logs import ranked
from training.baselines import MARKOV_PARENT_WEIGHT, Baselines
from training.queries import Query
from training.replay import Decision


def query(past: str, useful: str, actions: str = "abcd", task: str = "t") -> Query:
    session = SessionRow(
        actions=[Done(float(place), place, action) for place, action in enumerate(past)],
        tokens=[Token(float(place), place, f"+{action}") for place, action in enumerate(past)],
    )
    known = Known(Population().at(), None, session)
    names = tuple(actions)
    moment = Moment(9.0, "u", Context(fields={"task": task}), known, names, (None,) * len(names), (None,) * len(names))
    grades = np.array([float(action == useful) for action in actions])
    positions, unseen = np.arange(1, len(names) + 1), np.zeros(len(names), np.bool_)
    return Query(Decision(0, ranked("r", 0), known), moment, grades, positions, unseen, 0)


def taught(examples: Sequence[tuple[str, str]]) -> Baselines:
    baselines = Baselines()
    for past, useful in examples:
        baselines.learn(query(past, useful))
    return baselines


def random_examples(seed: int, count: int) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    return [("".join(draw.choices("abcd", k=draw.randrange(5))), draw.choice("aabc")) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_popularity_and_markov_are_what_counting_gives(seed: int) -> None:
    examples = random_examples(seed, 60)
    scores = taught(examples).scores(query("dab", "a"))
    share = {action: (sum(useful == action for _, useful in examples) + 1) / (60 + 4) for action in "abcd"}
    assert scores["popularity"] == pytest.approx(list(share.values()))
    for order in range(4):
        after = Counter(useful for past, useful in examples if past[-order:][::-1] == "dab"[-order:][::-1] or not order)
        if after:
            share = {
                a: (after[a] + MARKOV_PARENT_WEIGHT * share[a]) / (after.total() + MARKOV_PARENT_WEIGHT) for a in "abcd"
            }
    assert scores["markov"] == pytest.approx(list(share.values()))


def test_markov_follows_the_task_and_backs_off_where_it_knows_nothing() -> None:
    baselines = taught([("a", "b")] * 5)
    assert int(baselines.scores(query("a", ""))["markov"].argmax()) == 1
    unseen = baselines.scores(query("a", "", task="other"))
    assert unseen["markov"] == pytest.approx(unseen["popularity"])


def test_the_linear_model_learns_what_followed_and_puts_the_unknown_last() -> None:
    baselines = taught([("a", "b"), ("b", "c"), ("c", "a")] * 30)
    for past, useful in (("a", "b"), ("b", "c"), ("c", "a")):
        scores = baselines.scores(query(past, useful))["linear"]
        assert "abcd"[int(scores.argmax())] == useful
        assert scores[3] == scores.min() == -1e9


def test_the_first_judged_query_ends_learning_for_all_of_them() -> None:
    baselines = taught([("a", "b")] * 3)
    before = baselines.scores(query("a", "b"))
    for _ in range(50):
        baselines.learn(query("a", "c"))
    after = baselines.scores(query("a", "b"))
    assert baselines.examples == 3
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_without_a_past_all_candidates_are_equal() -> None:
    for scores in Baselines().scores(query("", "a")).values():
        assert len(set(scores.tolist())) == 1
    assert from_seconds(0.0).year == 1970


def test_a_query_without_a_useful_candidate_teaches_nothing() -> None:
    assert taught([("a", "z")]).examples == 0
