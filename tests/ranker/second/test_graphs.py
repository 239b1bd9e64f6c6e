"""Static buckets give the numbers of the shapes that were asked for; a capturer that only repeats stands for CUDA's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ranker.second.batches import candidate_batch
from ranker.second.direct import encode_window, score_cached, score_direct, see
from ranker.second.graphs import GraphedScores, bucket_of, buckets
from ranker.second.happenings import Course
from tests.ranker.inference.loops import in_loop
from tests.ranker.second import made
from tests.ranker.second.paging import Served

NOW_S = made.START_S + 1e6


class Repeating:
    """Runs the job again into the memory of its first result, as a graph does."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def capture(self, job: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
        self.captured += 1
        found = job()

        def replay() -> None:
            self.replayed += 1
            found.copy_(job())

        return replay, found


def test_buckets_double_and_the_largest_is_what_was_asked_for() -> None:
    assert buckets(16, 100) == (16, 32, 64, 100)
    assert buckets(32, 32) == (32,)
    assert [bucket_of(count, (16, 32, 50)) for count in (1, 16, 17, 33, 50)] == [16, 16, 32, 50, 50]


@torch.inference_mode()
def test_scores_in_buckets_are_those_of_the_network_whatever_was_in_them_before() -> None:
    model, capturer = made.model(), Repeating()
    sizes = model.sizes
    keys, values = (torch.full((sizes.layers, sizes.window, sizes.dim), torch.nan) for _ in range(2))
    graphed = GraphedScores(model.net, keys, values, capturer, page_tokens=8, micro_batch=40)
    for events, count in ((16, 40), (3, 5), (9, 20), (0, 7), (16, 16), (5, 40)):
        course, candidates = made.course(events, seed=events), made.candidates(count, seed=count)
        seen = see(model, course, NOW_S, "u", "s1", made.context("words"))
        cache = encode_window(model, seen.tokens)
        for layer in range(sizes.layers):
            keys[layer, :events] = cache.keys[layer][0].flatten(1)
            values[layer, :events] = cache.values[layer][0].flatten(1)
        batch = candidate_batch([[(seen.request, candidates, len(seen.tokens), seen.origin_s)]])[0]
        found = graphed.score(batch, events)
        torch.testing.assert_close(found, score_cached(model, cache, seen, candidates), atol=1e-5, rtol=0)
    assert capturer.replayed == 6 and capturer.captured == len(graphed) == 5


def test_all_buckets_are_captured_beforehand() -> None:
    model, capturer = made.model(), Repeating()
    keys, values = (torch.zeros(model.sizes.layers, 16, model.sizes.dim) for _ in range(2))
    graphed = GraphedScores(model.net, keys, values, capturer, page_tokens=8, micro_batch=40)
    seen = see(model, made.course(3), NOW_S, "u", "s1", made.context("words"))
    batch = candidate_batch([[(seen.request, made.candidates(5), 3, seen.origin_s)]])[0]
    with torch.inference_mode():
        graphed.warm(batch)
        graphed.score(batch, 3)
    assert capturer.captured == 2 * 3


@pytest.mark.parametrize("scheme", ["fp32", "int8"])
@in_loop
async def test_what_a_gpu_would_serve_is_what_everything_encoded_anew_gives(tmp_path: Path, scheme: str) -> None:
    served = Served(tmp_path, made.model(), scheme=scheme, capturer=Repeating())
    await served.load()
    course = Course()
    for place, happening in enumerate(made.course(37).kept):
        course.add(happening, None)
        if place % 3 == 0:
            found = await served.logits(served.ask("u", course, made.candidates(11), NOW_S))
            seen = see(served.model, course, NOW_S, "u", "s1", made.context("words"))
            expected = score_direct(served.model, seen, made.candidates(11)).numpy()
            np.testing.assert_allclose(found, expected, atol=1e-4 if scheme == "fp32" else 0.2, rtol=0)
    assert served.store.pages.stats.tokens_reused > 0
    await served.close()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_on_a_gpu_gives_the_numbers_of_the_cpu() -> None:
    from ranker.second.batches import moved
    from ranker.second.graphs import CudaCapturer

    model, device = made.model(), torch.device("cuda")
    seen, candidates = see(model, made.course(9), NOW_S, "u", "s1", made.context("words")), made.candidates(20)
    cache = encode_window(model, seen.tokens)
    expected = score_cached(model, cache, seen, candidates)
    keys, values = (
        torch.stack([layer[0].flatten(1) for layer in each]).to(device) for each in (cache.keys, cache.values)
    )
    net = model.net.to(device)
    batch = candidate_batch([[(seen.request, candidates, len(seen.tokens), seen.origin_s)]])[0]
    with torch.inference_mode():
        graphed = GraphedScores(net, keys, values, CudaCapturer(), page_tokens=8, micro_batch=40)
        for _ in range(2):
            torch.testing.assert_close(graphed.score(moved(batch, device), 9).cpu(), expected, atol=1e-4, rtol=0)
