"""The line in key order and its sums, against a sorted list."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranker.inference.lane import Lane, Model, PriorityQueue
from ranker.inference.line import CHUNK, Line
from ranker.inference.prefix import PrefixSums
from ranker.inference.request import Request
from ranker.inference.waiting import Waiting

LANE = Lane(Model("m@1"), "normal", PriorityQueue())


def waiting(key: float, number: int, tokens: int) -> Waiting:
    return Waiting(Request(str(number), "m@1", tokens, 0.0, key), LANE, tokens, 0.0, key, key, number)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9)), max_size=40), st.lists(st.integers(1, 9), max_size=9))
def test_prefix_sums_are_the_sums(changes: list[tuple[int, int]], more: list[int]) -> None:
    sums, plain = PrefixSums(), [0] * 10
    sums.rebuild([(0, 0)] * 10)
    for place, tokens in changes:
        sums.add(place, tokens, 1)
        plain[place] += tokens
    for tokens in more:
        sums.append(tokens, 1)
        plain.append(tokens)
    assert [sums.before(place)[0] for place in range(len(plain) + 1)] == [sum(plain[:n]) for n in range(len(plain) + 1)]


@pytest.mark.parametrize("seed", range(6))
def test_a_line_keeps_order_and_sums_through_additions_removals_and_departures(seed: int) -> None:
    draw, line, plain = random.Random(seed), Line(), list[Waiting]()
    span = draw.choice([10, 10_000])
    for number in range(6 * CHUNK):
        added = waiting(float(draw.randint(0, span) + number * (seed % 2)), number, draw.randint(1, 100))
        line.add((added.key_ms, added.number, added), added.tokens)
        plain = sorted([*plain, added], key=lambda each: (each.key_ms, each.number))
        if draw.random() < 0.2:
            line.remove(gone := draw.choice(plain))
            plain.remove(gone)
        if draw.random() < 0.02:
            count = draw.randint(0, len(plain))
            line.drop_first(count)
            plain = plain[count:]
        if number % 50 == 0:
            key = float(draw.randint(0, span))
            ahead = [each.tokens for each in plain if each.key_ms <= key]
            assert line.before(key) == (sum(ahead), len(ahead))
            assert list(line) == plain
            assert (line.requests, line.tokens) == (len(plain), sum(each.tokens for each in plain))
