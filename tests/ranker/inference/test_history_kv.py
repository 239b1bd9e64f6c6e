"""A history is read from its pages and written to them, page by page, in every format, and by a real attention."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch

from ranker.inference.history_kv import HistoryHold, HistoryKv
from ranker.inference.kv_spec import SCHEMES
from ranker.inference.memory_errors import InvalidSize, NotFinite
from ranker.inference.model import Member
from ranker.inference.page_store import PageStore, open_store
from ranker.inference.pages import Scope
from ranker.inference.pool import MemoryPool
from ranker.inference.workspace import Workspaces
from tests.ranker.inference.tiny_transformer import (
    LAYERS,
    PAGE,
    SPEC,
    WIDTH,
    Ask,
    TinyTransformer,
    dense,
    page_config,
    weights_from,
    weights_of,
)

SCOPE = Scope("m@1", "s", "x", "u")
EVENTS = [bytes([number]) for number in range(19)]
ERRORS = {"fp32": 1e-6, "bf16": 0.05, "int8": 0.02, "int4": 0.4}
"""How far a score may be from the exact one. Scores are about 2 in size; the formats keep 2^-9, 1/510 and 1/30 of a
range."""


def opened(scheme: str, pages: int = 16) -> PageStore:
    return open_store(MemoryPool(1 << 20), replace(SPEC, scheme=scheme), page_config(pages))


def buffers(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((LAYERS, tokens, WIDTH), torch.nan), torch.full((LAYERS, tokens, WIDTH), torch.nan)


def entry(event: int, layer: int, what: int) -> torch.Tensor:
    """What a made-up model writes for an event."""
    return torch.sin(torch.arange(WIDTH) * (1.0 + event) + layer + 10.0 * what)


def filled(store: PageStore, events: list[bytes]) -> tuple[torch.Tensor, torch.Tensor, list[slice]]:
    """A history's entries after one pass, and the spans that had to be encoded."""
    with store.pages.open(SCOPE, events) as history:
        kv = HistoryKv(store, history, *buffers(len(events)))
        spans = []
        for span in kv.spans():
            spans.append(span)
            for layer, position in itertools.product(range(LAYERS), range(span.start, span.stop)):
                event = history.window[position][0]
                kv.keys[layer, position], kv.values[layer, position] = entry(event, layer, 0), entry(event, layer, 1)
        history.commit()
        return kv.keys, kv.values, spans


def test_spans_cover_what_is_new_and_never_cross_a_page() -> None:
    store = opened("fp32")
    assert filled(store, EVENTS[:6])[2] == [slice(0, 4), slice(4, 6)]
    assert filled(store, EVENTS[:6])[2] == []
    assert filled(store, EVENTS[:7])[2] == [slice(6, 7)]
    assert filled(store, EVENTS[:13])[2] == [slice(7, 8), slice(8, 12), slice(12, 13)]
    assert filled(store, [])[2] == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("steps", [[1] * 19, [19], [3, 4, 5, 7], [8, 8, 3], [18, 1]], ids=str)
def test_what_is_read_does_not_depend_on_how_it_was_appended(scheme: str, steps: list[int]) -> None:
    whole, stepwise = opened(scheme), opened(scheme)
    end = 0
    for step in steps:
        end += step
        keys, values, _ = filled(stepwise, EVENTS[:end])
    expected_keys, expected_values, _ = filled(whole, EVENTS)
    assert torch.equal(keys, expected_keys) and torch.equal(values, expected_values)
    again = filled(stepwise, EVENTS)
    assert again[2] == [] and torch.equal(again[0], expected_keys)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_tail_is_exact_and_full_pages_are_as_their_format_keeps_them(scheme: str) -> None:
    keys, values, _ = filled(opened(scheme), EVENTS)
    exact = torch.stack([torch.stack([entry(n, layer, 0) for n in range(19)]) for layer in range(LAYERS)])
    assert torch.equal(keys[:, 16:], exact[:, 16:])
    assert torch.equal(keys, exact) == (scheme == "fp32")
    assert torch.allclose(keys, exact, atol=2.0 / 15 / 2 + 1e-6)
    assert torch.isfinite(values).all()


def test_a_late_event_shares_the_pages_before_it_only() -> None:
    store = opened("int8")
    filled(store, EVENTS)
    changed = [*EVENTS[:9], b"late", *EVENTS[9:]]
    with store.pages.open(SCOPE, changed) as history:
        assert history.layout.cached == 2 * PAGE


def test_a_span_with_nan_is_refused_and_nothing_can_be_found_after_it() -> None:
    store = opened("int8")
    with store.pages.open(SCOPE, EVENTS) as history, pytest.raises(NotFinite):
        for _ in HistoryKv(store, history, *buffers(len(EVENTS))).spans():
            pass  # the buffers hold NaN
    assert store.pages.new_tokens(SCOPE, EVENTS) == len(EVENTS)
    store.pages.check_integrity()


@pytest.mark.parametrize("shape", [(1, 19, 16), (2, 18, 16), (2, 19, 8), (19, 16)])
def test_a_buffer_that_does_not_fit_is_refused(shape: tuple[int, ...]) -> None:
    store = opened("fp32")
    with store.pages.open(SCOPE, EVENTS) as history, pytest.raises(InvalidSize, match="values must be"):
        HistoryKv(store, history, buffers(19)[0], torch.zeros(shape))


def test_buffers_may_be_rows_of_a_padded_block() -> None:
    store = opened("int4")
    block = torch.zeros(2, 3, LAYERS, 32, WIDTH)
    with store.pages.open(SCOPE, EVENTS) as history:
        for span in HistoryKv(store, history, block[0, 1], block[1, 1]).spans():
            block[:, 1, :, span] = 1.0
        assert (block[:, 1, :, :19] == 1.0).all() and not block[:, 0].any() and not block[:, 1, :, 19:].any()


def scored(model: TinyTransformer, workspaces: Workspaces, asks: list[Ask]) -> list[list[float]]:
    """One batch of these."""
    members = [Member(ask, model.hold(ask)) for ask in asks]
    with workspaces.batch() as workspace:
        scores = model.run(members, workspace)
    for member in members:
        member.hold.release()
    return [list(each) for each in scores]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_attention_over_pages_of_every_format_is_close_to_the_exact_one_and_the_same_cached_or_not(scheme: str) -> None:
    pool = MemoryPool(4 << 20)
    workspaces = Workspaces(pool, 1 << 18)
    store = open_store(pool, replace(SPEC, scheme=scheme), page_config(32))
    files = weights_of(1)
    model = TinyTransformer("tiny", "1", store)
    model.weights = weights_from(files)
    candidates, growing = tuple(range(20, 32)), tuple(range(0, 60, 2))
    appended = [scored(model, workspaces, [Ask("a", growing[:end], candidates)])[0] for end in range(1, 31)]
    assert model.encoded_tokens == 30
    fresh = scored(model, workspaces, [Ask(f"u{end}", growing[:end], candidates) for end in (5, 17, 30)])
    for end, scores in zip((5, 17, 30), fresh, strict=True):
        assert scores == pytest.approx(appended[end - 1], abs=1e-5)
        assert scores == pytest.approx(dense(files, Ask("x", growing[:end], candidates)), abs=ERRORS[scheme])
    assert store.pages.open_histories == 0


def test_a_hold_costs_what_is_new_and_what_is_beside_it() -> None:
    store = opened("fp32")
    filled(store, EVENTS[:8])
    hold = HistoryHold(store.pages.open(SCOPE, EVENTS), 5)
    assert hold.tokens == 19 - 8 + 5
    hold.release()
    assert store.pages.open_histories == 0
