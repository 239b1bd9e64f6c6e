"""Population priors: the closed form, by hand, along the chain from everything to the particular."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.events import Context
from features.known import Known, Moment
from features.population import EVERYTHING, Population
from features.priors import back_off, support
from features.rows import SessionRow
from features.situation import FAMILIES, situation_keys

NOW_S = 1_700_000_000.0


def context(**fields: Any) -> Context:
    return msgspec.convert(fields, Context)


def credit(population: Population, where: Context, counts: dict[str, int], kind: str = "accepted") -> None:
    for action, count in counts.items():
        for _ in range(count):
            population.credit(situation_keys(where, None).values(), kind, (action,), NOW_S)


def moment(population: Population, actions: str, where: Context, session: SessionRow | None = None) -> Moment:
    names = tuple(actions)
    return Moment(
        NOW_S, "u", where, Known(population.at(), None, session), names, (None,) * len(names), (None,) * len(names)
    )


def test_knowing_nothing_every_candidate_is_as_likely() -> None:
    assert back_off(moment(Population(), "abcd", context(surface="chat"))) == pytest.approx([0.25] * 4)
    assert back_off(moment(Population(), "", context())).shape == (0,)


def test_one_step_down_the_chain_is_the_formula() -> None:
    population = Population()
    credit(population, context(surface="chat"), {"a": 3})
    credit(population, context(surface="mail"), {"a": 1, "b": 4})
    chat = moment(population, "abz", context(surface="chat"))
    root = np.array([4 + 1, 4 + 1, 0 + 1]) / (8 + 3)
    expected = (np.array([3, 0, 0]) + 2 * root) / (3 + 2)
    assert back_off(chat, ("surface",)) == pytest.approx(expected)
    assert support(chat, "surface") == 3
    assert back_off(chat, ("surface", "trigger"), parent_weight=1.0) == pytest.approx(
        (np.array([3, 0, 0]) + (np.array([3, 0, 0]) + root) / 4) / 4
    )


def test_a_context_never_seen_leaves_its_parents_word() -> None:
    population = Population()
    credit(population, context(surface="chat"), {"a": 3, "b": 1})
    unseen = moment(population, "ab", context(surface="tv", trigger={"type": "t"}))
    assert back_off(unseen, ("surface", "trigger")) == pytest.approx([4 / 6, 2 / 6])
    assert support(unseen, "surface") == 0


def test_what_a_user_did_by_himself_counts_as_much_as_an_accept_and_an_offer_not_at_all() -> None:
    population = Population()
    credit(population, context(), {"a": 2}, "self")
    credit(population, context(), {"b": 2}, "accepted")
    credit(population, context(), {"c": 50}, "offered")
    prior = back_off(moment(population, "abc", context()))
    assert prior[0] == prior[1] > prior[2]


WHERE = st.builds(
    lambda surface, task: context(surface=surface, fields={"task": task}), st.sampled_from("xy"), st.sampled_from("pq")
)


@given(st.lists(st.tuples(WHERE, st.sampled_from("abcdef"), st.sampled_from(["accepted", "self"])), max_size=30), WHERE)
def test_over_all_actions_the_prior_sums_to_one_and_follows_no_order(
    outcomes: list[tuple[Context, str, str]], where: Context
) -> None:
    population = Population()
    for seen_in, action, kind in outcomes:
        credit(population, seen_in, {action: 1}, kind)
    prior = back_off(moment(population, "abcdef", where))
    assert prior.sum() == pytest.approx(1.0)
    assert (prior > 0.0).all()
    assert back_off(moment(population, "fedcba", where))[::-1] == pytest.approx(prior, rel=1e-12)
    assert set(situation_keys(where, None)) == {EVERYTHING, *FAMILIES}
