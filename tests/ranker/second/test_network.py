"""The network: causal, cacheable, and each candidate for itself."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranker.inference.page_hash import window_start
from ranker.second.attention import attend_history, merge_self
from ranker.second.batches import candidate_batch, event_batch
from ranker.second.direct import encode_window, score_cached, score_direct, see
from ranker.second.happenings import Happening
from ranker.second.network import Cache, SecondNet
from ranker.second.tokens import encode_events
from ranker.second.weights import SecondModel
from tests.ranker.second.made import SIZES, candidates, context, course, model

EXACT = 1e-4


@cache
def shared() -> SecondModel:
    return model()


@pytest.fixture
def made() -> SecondModel:
    return shared()


def joined(first: Cache, second: Cache) -> Cache:
    return Cache(
        tuple(torch.cat(pair, dim=1) for pair in zip(first.keys, second.keys, strict=True)),
        tuple(torch.cat(pair, dim=1) for pair in zip(first.values, second.values, strict=True)),
    )


def test_a_later_event_changes_nothing_before_it(made: SecondModel) -> None:
    kept = course(12).kept
    other = Happening(kept[-1].time_s + 9e5, 99, 0, "dismissed", "a3", None, None, 7)
    before = encode_events(kept, None, made.vocabulary, SIZES)
    after = encode_events([*kept, other], None, made.vocabulary, SIZES)
    _, hidden = made.net.encode(event_batch([before]))
    _, longer = made.net.encode(event_batch([after]))
    assert torch.allclose(hidden, longer[:, :-1], atol=1e-5)


def test_padding_changes_nothing(made: SecondModel) -> None:
    histories = [encode_events(course(n, n).kept, None, made.vocabulary, SIZES) for n in (3, 9, 14)]
    _, together = made.net.encode(event_batch(histories))
    for row, tokens in enumerate(histories):
        _, alone = made.net.encode(event_batch([tokens]))
        assert torch.allclose(alone[0], together[row, : len(tokens)], atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 16), st.integers(0, 16), st.integers(0, 1000))
def test_what_is_appended_is_what_is_computed_anew(one: int, other: int, seed: int) -> None:
    made = shared()
    cut, count = sorted((one, other))
    now = course(count, seed)
    seen = see(made, now, now.kept[-1].time_s + 60 if count else 1e9, "u", "s", context("hello"))
    wanted = score_direct(made, seen, candidates(7, seed))
    first = encode_window(made, seen.tokens[:cut])
    rest = event_batch([seen.tokens[cut:]], first=cut, origin_s=[seen.origin_s])
    with torch.inference_mode():
        second, _ = made.net.encode(rest, first)
    found = score_cached(made, joined(first, second), seen, candidates(7, seed))
    assert float((wanted - found).abs().max()) <= EXACT


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 1000))
def test_a_score_depends_neither_on_neighbours_nor_on_the_micro_batch(count: int, micro: int, seed: int) -> None:
    made = shared()
    now = course(11, seed)
    seen = see(made, now, now.kept[-1].time_s + 5, "u", None, context())
    cache = encode_window(made, seen.tokens)
    offered = candidates(count, seed)
    together = score_cached(made, cache, seen, offered)
    parts = score_cached(made, cache, seen, offered, micro)
    turned = score_cached(made, cache, seen, offered.rows(slice(None, None, -1)))
    assert float((together - parts).abs().max()) <= EXACT
    assert float((together - turned.flip(0)).abs().max()) <= EXACT


def test_the_merge_is_the_softmax_over_history_and_self(made: SecondModel) -> None:
    """A dense oracle: the candidate as one more event of the sequence, keys joined before one softmax."""
    block = made.net.blocks[0]
    torch.manual_seed(1)
    query, own_key, own_value = (torch.randn(1, 5, 2, 16) for _ in range(3))
    key, value = torch.randn(1, 9, 2, 16), torch.randn(1, 9, 2, 16)
    found = merge_self(*attend_history(query, key, value, None), query, own_key, own_value)
    for candidate in range(5):
        keys = torch.cat([key[0], own_key[0, candidate][None]])
        values = torch.cat([value[0], own_value[0, candidate][None]])
        weights = torch.softmax(torch.einsum("hd,nhd->hn", query[0, candidate], keys) / 4.0, dim=-1)
        wanted = torch.einsum("hn,nhd->hd", weights, values)
        assert torch.allclose(found[0, candidate], wanted, atol=1e-5)
    assert block.heads == 2


def test_a_prefix_hides_what_came_after_the_request(made: SecondModel) -> None:
    now = course(14)
    whole = encode_events(now.kept, None, made.vocabulary, SIZES)
    early = course(6)
    seen = see(made, early, early.kept[-1].time_s + 5, "u", None, context())
    offered = candidates(6)
    wanted = score_direct(made, seen, offered)
    batch, real = candidate_batch([[(seen.request, offered, 6, seen.origin_s)]])
    cache, _ = made.net.encode(event_batch([whole]))
    found = made.net.score(batch, cache, prefix=True)[0]
    assert bool(real.all())
    assert float((wanted - found).abs().max()) <= EXACT


def test_an_empty_history_with_500_candidates_is_scored(made: SecondModel) -> None:
    seen = see(made, course(0), 1e9, "nobody", None, context("hi"))
    logits = score_direct(made, seen, candidates(500))
    assert logits.shape == (500, 4)
    assert bool(torch.isfinite(logits).all())
    offered = candidates(500)
    assert float((logits[17] - score_direct(made, seen, offered.rows([17]))[0]).abs().max()) <= EXACT


def test_no_candidate_is_no_score(made: SecondModel) -> None:
    seen = see(made, course(4), 2e9, "u", None, context())
    assert score_direct(made, seen, candidates(0)).shape == (0, 4)


def test_10_000_events_are_a_window_of_them(made: SecondModel) -> None:
    now = course(10_000)
    seen = see(made, now, now.kept[-1].time_s + 5, "u", None, context())
    assert seen.start == window_start(10_000, 16)
    assert len(seen.tokens) == 10_000 - seen.start <= 16
    assert bool(torch.isfinite(score_direct(made, seen, candidates(5))).all())


def test_events_of_equal_times_are_scored(made: SecondModel) -> None:
    now = course(10, gap_s=0.0)
    assert len({each.time_s for each in now.kept}) == 1
    seen = see(made, now, now.kept[-1].time_s, "u", None, context())
    assert bool(torch.isfinite(score_direct(made, seen, candidates(5))).all())


def test_a_model_starts_as_the_light_score() -> None:
    torch.manual_seed(0)
    made = model()
    net = SecondNet(SIZES, made.vocabulary.rows, made.net.light.mean.shape[0] - 1).eval()
    offered = candidates(5)
    now = course(8)
    seen = see(made, now, now.kept[-1].time_s + 1, "u", None, context())
    batch, _ = candidate_batch([[(seen.request, offered, 8, seen.origin_s)]])
    with torch.inference_mode():
        cache, _ = net.encode(event_batch([seen.tokens]))
        logits = net.score(batch, cache)[0]
    assert np.allclose(logits.numpy(), offered.light[:, None], atol=1e-6)
