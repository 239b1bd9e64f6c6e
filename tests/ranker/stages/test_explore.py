"""explore: who explores, what is drawn, and that everything drawn has been judged."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ranker.exclusions import Exclusions
from ranker.greedy import greedy_order
from ranker.judges import Judge, Verdicts
from ranker.propensity import Exploration
from ranker.stages.explore import Explore, cast_lot
from ranker.types import Ranking
from tests.fakes import SECRET, catalogue, ranking

ABCD = catalogue({name: {} for name in "abcd"})


@dataclass
class Refusing:
    """A judge that refuses some actions, and remembers what it was asked about."""

    refused: str = ""
    name: str = "safety"
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def judge(self, ranking: Ranking) -> Verdicts:
        self.asked.append(ranking.candidates.actions)
        keep = np.array([action not in self.refused for action in ranking.candidates.actions], np.bool_)
        return Verdicts(keep, ["" if kept else "said so" for kept in keep])


def run(state: Ranking, epsilon: float = 0.0, judges: tuple[Judge, ...] = (), temperature: float = 1.0) -> Ranking:
    return asyncio.run(Explore(judges, SECRET, Exploration(epsilon, temperature)).run(state))


def ordered(result: Ranking) -> list[str]:
    return [result.candidates.actions[row] for row in result.order]


def test_without_exploration_the_best_come_first() -> None:
    result = run(ranking(ABCD, "abcd", [1.0, 3.0, 2.0, 0.0]))
    assert ordered(result) == ["b", "c", "a", "d"]
    assert result.order == result.greedy and result.traffic == "live"


def test_equal_scores_go_by_prior_and_then_by_name_whatever_the_order_they_came_in() -> None:
    priors = {"a": 0.1, "b": 0.2, "c": 0.1, "d": 0.1}
    for names in itertools.permutations("abcd"):
        result = run(ranking(ABCD, names, [0.0] * 4, [priors[name] for name in names]))
        assert ordered(result) == ["b", "a", "c", "d"]


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from([0.1, 0.2])), min_size=1, max_size=8))
def test_the_greedy_order_is_that_of_a_plain_sort(values: list[tuple[float, float]]) -> None:
    names = [f"{number}" for number in range(len(values))][::-1]
    compiled = catalogue({name: {} for name in names})
    state = ranking(compiled, names, [score for score, _ in values], [prior for _, prior in values])
    plain = sorted(range(len(names)), key=lambda row: (-values[row][0], -values[row][1], names[row]))
    assert greedy_order(state) == plain


def test_every_judge_speaks_before_the_draw_about_what_the_others_left() -> None:
    first, second = Refusing("a"), Refusing("b", "freshness")
    result = run(ranking(ABCD, "abcd"), 1.0, (first, second))
    assert (first.asked, second.asked) == ([("a", "b", "c", "d")], [("b", "c", "d")])
    assert sorted(ordered(result)) == ["c", "d"]
    assert [(drop.stage, drop.action) for drop in result.drops] == [("safety", "a"), ("freshness", "b")]


def test_the_share_that_explores_is_epsilon() -> None:
    explored = sum(cast_lot(SECRET, f"r{number}").share < 0.1 for number in range(20_000))
    assert stats.binomtest(explored, 20_000, 0.1).pvalue > 0.001


def test_whether_a_request_explores_does_not_depend_on_what_it_is_about() -> None:
    for number in range(50):
        few = run(ranking(ABCD, "ab", request_id=f"r{number}"), 0.5)
        many = run(ranking(ABCD, "abcd", [4, 3, 2, 1], request_id=f"r{number}", context={"surface": "x"}), 0.5)
        assert few.traffic == many.traffic


def test_another_secret_explores_other_requests() -> None:
    lots = [[cast_lot(secret, f"r{number}") for number in range(20)] for secret in (SECRET, b"other secret of tests")]
    assert not set(lots[0]) & set(lots[1])


@pytest.mark.parametrize(("traffic", "drawn"), [("live", "explore"), ("probe", "probe"), ("replay", "replay")])
def test_only_live_traffic_becomes_exploration(traffic: str, drawn: str) -> None:
    assert run(ranking(ABCD, "abcd", traffic=traffic), 1.0).traffic == drawn
    assert run(ranking(ABCD, "abcd", traffic=traffic), 0.0).traffic == traffic


def test_drawn_orders_come_as_often_as_plackett_luce_says() -> None:
    scores, temperature, draws = [1.0, 0.0, -0.5], 0.7, 6000
    stage = Explore((), SECRET, Exploration(1.0, temperature))
    state = ranking(ABCD, "abc", scores)

    async def draw() -> Counter[tuple[int, ...]]:
        return Counter([(await stage.run(dataclasses.replace(state, request_id=f"r{n}"))).order for n in range(draws)])

    counts = asyncio.run(draw())
    weights = [math.exp(score / temperature) for score in scores]
    orders = list(itertools.permutations(range(3)))
    expected = [draws * weights[a] / sum(weights) * weights[b] / (sum(weights) - weights[a]) for a, b, _ in orders]
    assert stats.chisquare([counts[order] for order in orders], expected).pvalue > 0.001


def test_a_list_of_nothing_has_no_order() -> None:
    assert run(ranking(ABCD, ""), 1.0).order == ()


def test_of_a_group_only_the_best_ranked_action_reaches_the_draw() -> None:
    compiled = catalogue({"a": {"exclusive_group": "g"}, "b": {"exclusive_group": "g"}, "c": {}})
    result = run(ranking(compiled, "abc", [1.0, 2.0, 0.0]), 1.0, (Exclusions(compiled),))
    assert sorted(ordered(result)) == ["b", "c"]
    assert [(drop.stage, drop.action, drop.reason) for drop in result.drops] == [("policy", "a", "exclusive")]


def test_targets_of_one_action_do_not_exclude_each_other() -> None:
    compiled = catalogue({"a": {"exclusive_group": "g"}, "b": {"exclusive_group": "g"}})
    state = ranking(compiled, [("a", "x:1"), ("b", None), ("a", "x:2")], [3.0, 2.0, 1.0])
    assert ordered(run(state, judges=(Exclusions(compiled),))) == ["a", "a"]


def test_what_is_excluded_itself_excludes_nothing() -> None:
    """c beats b, so b is out and does not keep a out."""
    judge = Exclusions(ABCD, [["a", "b"], ["b", "c"]])
    assert ordered(run(ranking(ABCD, "abcd", [1.0, 2.0, 3.0, 0.0]), judges=(judge,))) == ["c", "a", "d"]


def test_an_unsafe_action_does_not_keep_a_safe_one_out() -> None:
    judges = (Refusing("a"), Exclusions(ABCD, [["a", "b"]]))
    assert ordered(run(ranking(ABCD, "ab", [2.0, 1.0]), judges=judges)) == ["b"]


@given(
    st.lists(st.sampled_from([None, "g", "h"]), min_size=1, max_size=6),
    st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=3), max_size=3),
    st.randoms(),
)
def test_exclusions_agree_with_comparing_all_pairs(
    own: list[str | None], groups: list[list[int]], random: Random
) -> None:
    names = [str(number) for number in range(len(own))]
    compiled = catalogue({name: {"exclusive_group": group} for name, group in zip(names, own, strict=True)})
    listed = [[str(number) for number in group] for group in groups]
    scores = random.sample(range(100), len(names))
    verdicts = Exclusions(compiled, listed).judge(ranking(compiled, names, scores))
    kept: list[str] = []
    for name in sorted(names, key=lambda name: -scores[int(name)]):

        def clash(other: str, name: str = name) -> bool:
            same = own[int(name)] is not None and own[int(name)] == own[int(other)]
            return same or any(name in group and other in group for group in listed)

        if not any(clash(other) for other in kept):
            kept.append(name)
    assert {name for name, keep in zip(names, verdicts.keep, strict=True) if keep} == set(kept)
