"""top actions: the first k, what the log will say of them, and why they are there."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math

import pytest

from features.rows import SessionRow
from ranker.degraded import Degraded
from ranker.propensity import Exploration
from ranker.stages.top_actions import TopActions
from ranker.types import Ranking
from tests.fakes import NOON_S, catalogue, context, known, popular, ranking, unread, user

ABC = catalogue({"a": {}, "b": {"triggers": ["came"]}, "c": {}})


def top(state: Ranking, order: tuple[int, ...], greedy: tuple[int, ...] = (0, 1, 2), epsilon: float = 0.0) -> Ranking:
    placed = dataclasses.replace(state, order=order, greedy=greedy)
    return asyncio.run(TopActions(Exploration(epsilon)).run(placed))


def test_the_first_k_are_offered_in_order() -> None:
    result = top(ranking(ABC, "abc", [3.0, 2.0, 1.0], k=2), (0, 1, 2))
    assert [(i.action, i.position, i.score, i.propensity) for i in result.items] == [
        ("a", 1, 3.0, 1.0),
        ("b", 2, 2.0, 1.0),
    ]


def test_nothing_left_is_said() -> None:
    assert top(ranking(ABC, ""), (), ()).degraded == (Degraded.EMPTY,)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0])
def test_slates_after_a_deletion_have_the_probability_that_enumeration_gives(epsilon: float) -> None:
    """All 24 orders of four candidates, one deleted after the draw, two shown."""
    compiled = catalogue({name: {} for name in "abcd"})
    weights, deleted = [4.0, 3.0, 2.0, 1.0], 1
    state = ranking(compiled, "abcd", [math.log(weight) for weight in weights], k=2)
    slates: dict[tuple[str, ...], tuple[float, float]] = {}
    for order in itertools.permutations(range(4)):
        left, drawn = sum(weights), 1.0
        for row in order:
            drawn *= weights[row] / left
            left -= weights[row]
        chance = epsilon * drawn + (1.0 - epsilon) * (order == (0, 1, 2, 3))
        kept = tuple(row for row in order if row != deleted)
        items = top(state, kept, (0, 2, 3), epsilon).items
        slate = tuple(item.action for item in items)
        total, _ = slates.get(slate, (0.0, 0.0))
        slates[slate] = total + chance, math.prod(item.propensity for item in items)
    assert sum(logged for _, logged in slates.values()) == pytest.approx(1.0)
    for total, logged in slates.values():
        assert logged == pytest.approx(total)


def test_reasons_are_worked_out_only_when_asked_for() -> None:
    assert all(item.reasons == () for item in top(ranking(ABC, "abc"), (0, 1, 2)).items)


def test_reasons_say_where_an_action_came_from_and_what_speaks_for_it() -> None:
    here = context(surface="home", trigger={"type": "came"})
    person = user()
    for _ in range(3):
        person.counters.credit("accepted", ("a",), NOON_S)
    what = known(person, popular({"a": 3, "b": 2}, here, SessionRow(), ["surface", "trigger"]))
    fields = {"surface": "home", "trigger": {"type": "came"}}
    result = top(ranking(ABC, "abc", what=what, explain=True, context=fields), (1, 0, 2))
    assert [item.reasons for item in result.items] == [
        ("source:caller", "trigger", "prior:trigger:5"),
        ("source:caller", "done:3", "prior:trigger:5"),
        ("cold_start", "source:caller", "prior:trigger:5"),
    ]


def test_a_user_never_seen_is_a_cold_start_and_one_not_read_is_not() -> None:
    tables = popular({"a": 1})
    seen, unseen = (
        top(ranking(ABC, "a", what=what, explain=True), (0,), (0,)).items[0].reasons[0]
        for what in (unread(tables), known(None, tables))
    )
    assert (seen, unseen) == ("source:caller", "cold_start")
