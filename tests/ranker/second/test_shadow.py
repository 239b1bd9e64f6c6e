"""The shadow of correctness: whatever was cached, evicted, late or beside, in any format, scores are as made anew."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranker.second.config import Sizes
from ranker.second.direct import score_direct, see
from ranker.second.happenings import Course, Happening
from ranker.second.tokens import CandidateTokens
from tests.ranker.inference.loops import in_loop
from tests.ranker.second import made
from tests.ranker.second.paging import Served

NOW_S = made.START_S + 1e6
OFF = {"fp32": 1e-4, "bf16": 0.05, "int8": 0.2, "int4": 3.0}
"""Logits of random weights have a standard deviation of about 3."""
WIDE = Sizes(dim=64, layers=2, heads=2, feed_forward=128, window=64, terms=4)


def wanted(served: Served, course: Course, user: str, candidates: CandidateTokens) -> np.ndarray:
    seen = see(served.model, course, NOW_S, user, "s1", made.context("words"))
    return score_direct(served.model, seen, candidates).numpy()


def grow(course: Course, draw: np.random.Generator, offset: int) -> None:
    """Something happens; one in eight comes late."""
    last = course.kept[-1].time_s if course.kept else made.START_S
    late = -500.0 if draw.random() < 0.125 else float(draw.exponential(50.0))
    kinds = [*made.KNOWN.kinds, "i:unknown"]
    kind, action = kinds[draw.integers(len(kinds))], f"a{draw.integers(25)}"
    course.add(Happening(last + late, offset, 0, kind, action, "chat", "image", int(draw.integers(1, 4))), None)


def without_one(course: Course, draw: np.random.Generator) -> Course:
    """The course as if one of its events had never been."""
    kept, left = list(course.kept), Course()
    del kept[int(draw.integers(len(kept)))]
    for happening in kept:
        left.add(happening, None)
    return left


@pytest.mark.parametrize("scheme", ["fp32", "bf16", "int8", "int4"])
@in_loop
async def test_scores_of_histories_that_grow_change_and_leave_are_those_of_histories_encoded_anew(
    tmp_path: Path, scheme: str
) -> None:
    served = Served(tmp_path, made.model(sizes=WIDE), scheme=scheme, pages=24, tails=20, page_tokens=16)
    await served.load()
    draw = np.random.default_rng(11)
    courses = {f"u{number}": made.course(int(draw.integers(0, 100)), seed=number) for number in range(8)}
    for step in range(25):
        waiting = []
        for user in draw.choice(sorted(courses), int(draw.integers(1, 6))).tolist():
            for part in range(int(draw.integers(0, 4))):
                grow(courses[user], draw, 1000 + 4 * step + part)
            if courses[user].kept and draw.random() < 0.1:
                courses[user] = without_one(courses[user], draw)
            if draw.random() < 0.05:
                served.store.pages.forget(user)
            candidates = made.candidates(int(draw.integers(1, 80)), seed=step)
            ask = served.ask(user, courses[user], candidates, NOW_S)
            waiting.append((served.logits(ask), wanted(served, courses[user], user, candidates)))
        found = await asyncio.gather(*(logits for logits, _ in waiting))
        for logits, (_, expected) in zip(found, waiting, strict=True):
            np.testing.assert_allclose(logits, expected, atol=OFF[scheme], rtol=0)
    assert served.store.pages.stats.tokens_reused > 0
    await served.close()


@pytest.mark.parametrize("scheme", ["fp32", "int4"])
@in_loop
async def test_a_score_is_the_same_to_the_bit_alone_among_others_and_in_any_order(tmp_path: Path, scheme: str) -> None:
    served = Served(tmp_path, made.model(sizes=WIDE), scheme=scheme, pages=60, tails=40, page_tokens=32)
    await served.load()
    courses = {f"u{number}": made.course(10 + 9 * number, seed=number) for number in range(6)}
    asks = [served.ask(user, course, made.candidates(40), NOW_S) for user, course in courses.items()]
    together = await asyncio.gather(*(served.logits(ask) for ask in asks))
    for ask, among in zip(asks[::-1], together[::-1], strict=True):
        np.testing.assert_array_equal(await served.logits(ask), among)  # its history found
        served.store.pages.forget(ask.user)
        np.testing.assert_array_equal(await served.logits(ask), among)  # its history made just now
    await served.close()


@given(st.permutations(range(30)), st.integers(1, 30), st.sampled_from([1, 5, 8, 64]))
@settings(max_examples=15, deadline=None)
def test_a_candidates_score_does_not_depend_on_its_neighbours_nor_on_micro_batches(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], count: int, micro_batch: int
) -> None:
    async def scored() -> None:
        served = Served(tmp_path_factory.mktemp("second"), made.model(), micro_batch=micro_batch)
        await served.load()
        course, candidates = made.course(21), made.candidates(30)
        all_of_them = await served.logits(served.ask("u", course, candidates, NOW_S))
        some = candidates.rows(np.array(order[:count]))
        found = await served.logits(served.ask("u", course, some, NOW_S))
        np.testing.assert_allclose(found, all_of_them[order[:count]], atol=1e-5, rtol=0)
        await served.close()

    asyncio.run(scored())
