"""The served second stage against the oracle that encodes everything anew."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch

from ranker.second.config import Sizes
from ranker.second.direct import score_direct, see
from ranker.second.happenings import Course, Happening
from ranker.second.tokens import CandidateTokens
from tests.ranker.inference.loops import in_loop
from tests.ranker.second import made
from tests.ranker.second.paging import Served

NOW_S = made.START_S + 1e6


def wanted(
    served: Served, course: Course, user: str, candidates: CandidateTokens, text: str | None = "words"
) -> np.ndarray:  # fmt: skip
    seen = see(served.model, course, NOW_S, user, "s1", made.context(text))
    return score_direct(served.model, seen, candidates).numpy()


@in_loop
async def test_scores_are_those_of_everything_encoded_anew_whatever_is_cached_evicted_or_beside(tmp_path: Path) -> None:
    served = Served(tmp_path, made.model(), pages=12, tails=12)  # fewer than the users need
    await served.load()
    draw = np.random.default_rng(5)
    courses = {f"u{number}": made.course(int(draw.integers(0, 40)), seed=number) for number in range(7)}
    waiting = []
    for step in range(120):
        user = f"u{draw.integers(7)}"
        course = courses[user]
        for _ in range(int(draw.integers(0, 4))):
            last = course.kept[-1].time_s if course.kept else made.START_S
            late = -500.0 if draw.random() < 0.1 else 50.0
            course.add(Happening(last + late, 1000 + step, 0, "i:typed", f"a{draw.integers(25)}", "chat"), None)
        candidates, text = made.candidates(int(draw.integers(1, 90)), seed=step), "words" if step % 3 else None
        ask = served.ask(user, course, candidates, NOW_S, text)
        waiting.append((served.logits(ask), wanted(served, course, user, candidates, text)))
    found = await asyncio.gather(*(logits for logits, _ in waiting))
    for logits, (_, expected) in zip(found, waiting, strict=True):
        np.testing.assert_allclose(logits, expected, atol=1e-4)
    assert served.store.pages.stats.tokens_reused > 0
    await served.close()


@in_loop
async def test_a_user_without_history_and_500_candidates_are_scored(tmp_path: Path) -> None:
    served = Served(tmp_path, made.model())
    await served.load()
    candidates = made.candidates(500)
    logits = await served.logits(served.ask("new", Course(), candidates, NOW_S))
    np.testing.assert_allclose(logits, wanted(served, Course(), "new", candidates), atol=1e-4)
    await served.close()


@in_loop
async def test_a_history_of_10_000_events_is_read_by_its_window(tmp_path: Path) -> None:
    served = Served(tmp_path, made.model())
    await served.load()
    course, candidates = made.course(10_000, gap_s=10.0), made.candidates(9)
    logits = await served.logits(served.ask("u", course, candidates, NOW_S))
    np.testing.assert_allclose(logits, wanted(served, course, "u", candidates), atol=1e-4)
    await served.close()


@pytest.mark.parametrize("micro_batch", [1, 7, 64])
@in_loop
async def test_a_score_does_not_depend_on_the_size_of_a_micro_batch(tmp_path: Path, micro_batch: int) -> None:
    served = Served(tmp_path, made.model(), micro_batch=micro_batch)
    await served.load()
    course, candidates = made.course(30), made.candidates(20)
    logits = await served.logits(served.ask("u", course, candidates, NOW_S))
    np.testing.assert_allclose(logits, wanted(served, course, "u", candidates), atol=1e-4)
    await served.close()


@pytest.mark.parametrize("scheme", ["fp32", "bf16", "int8", "int4"])
@in_loop
async def test_a_score_is_the_same_to_the_bit_whether_its_history_was_found_or_made_just_now(
    tmp_path: Path, scheme: str
) -> None:
    served = Served(tmp_path, made.model(), scheme=scheme)
    await served.load()
    course, candidates = Course(), made.candidates(11)
    for happening in made.course(37).kept:
        course.add(happening, None)
        grown = await served.logits(served.ask("u", course, candidates, NOW_S))
    served.store.pages.forget("u")
    anew = await served.logits(served.ask("u", course, candidates, NOW_S))
    np.testing.assert_array_equal(grown, anew)
    await served.close()


@in_loop
async def test_weights_of_half_precision_move_scores_little(tmp_path: Path) -> None:
    served = Served(tmp_path, made.model(), dtype=torch.bfloat16)
    await served.load()
    course, candidates = made.course(40), made.candidates(30)
    logits = await served.logits(served.ask("u", course, candidates, NOW_S))
    expected = wanted(served, course, "u", candidates)
    assert np.abs(logits - expected).max() < 0.05 * np.abs(expected).max()
    await served.close()


@in_loop
async def test_without_pages_scores_are_the_same_and_nothing_is_kept(tmp_path: Path) -> None:
    served = Served(tmp_path, made.model(), pages_kept=False)
    await served.load()
    course, candidates = made.course(30), made.candidates(20)
    for _ in range(2):
        logits = await served.logits(served.ask("u", course, candidates, NOW_S))
        np.testing.assert_allclose(logits, wanted(served, course, "u", candidates), atol=1e-4)
    assert (
        served.paged.cost(served.ask("u", course, candidates, NOW_S)) == len(served.windows.of("u", course).tokens) + 20
    )
    assert served.store.pages.stats.opened == 0
    await served.close()


@in_loop
async def test_a_cold_history_of_many_pages_is_as_one_that_grew(tmp_path: Path) -> None:
    wide = Sizes(dim=32, layers=2, heads=2, feed_forward=64, window=400, terms=4)
    served = Served(tmp_path, made.model(sizes=wide), scheme="int8", page_tokens=16)
    await served.load()
    candidates, grown = made.candidates(9), Course()
    for place, happening in enumerate(made.course(390, gap_s=10.0).kept):
        grown.add(happening, None)
        if place in (100, 101, 250, 389):
            found = await served.logits(served.ask("u", grown, candidates, NOW_S))
    served.store.pages.forget("u")
    np.testing.assert_array_equal(await served.logits(served.ask("u", grown, candidates, NOW_S)), found)
    await served.close()


@pytest.mark.parametrize("scheme", ["fp32", "int8"])
@in_loop
async def test_a_score_is_the_same_to_the_bit_whoever_is_scored_with_it(tmp_path: Path, scheme: str) -> None:
    served = Served(tmp_path, made.model(), scheme=scheme, micro_batch=16)
    await served.load()
    draw = np.random.default_rng(11)
    for turn in range(12):
        asks = [
            served.ask(f"u{turn}-{number}", made.course(int(draw.integers(0, 30)), seed=100 * turn + number),
                       made.candidates(int(draw.integers(1, 40)), seed=number), NOW_S)
            for number in range(int(draw.integers(2, 8)))
        ]  # fmt: skip
        together = served.at_once(asks)
        for ask in asks:
            served.store.pages.forget(ask.user)
        for ask, found in zip(asks, together, strict=True):
            np.testing.assert_array_equal(served.at_once([ask])[0], found)
            # and once more, now that all of its history is found
            np.testing.assert_array_equal(served.at_once([ask])[0], found)
    await served.close()
