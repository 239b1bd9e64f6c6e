"""Keys and values in pages: how many bytes, how far off, and always the same bits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from ranker.inference.kv_pages import KvPages, TailPages
from ranker.inference.kv_spec import LEVELS, SCHEMES, KvSpec
from ranker.inference.memory_errors import InvalidSize, NotFinite, PoolExhausted
from ranker.inference.page_hash import Scope
from ranker.inference.page_store import PageStore, config_that_fits, open_store
from ranker.inference.pages import TRASH, PageConfig
from ranker.inference.pool import MemoryPool

LAYERS, CHANNELS, TOKENS = 2, 64, 32


def spec(scheme: str, **fields: int) -> KvSpec:
    return KvSpec(scheme, **{"layers": LAYERS, "channels": CHANNELS, "page_tokens": TOKENS, **fields})


def kv_pages(chosen: KvSpec, count: int = 8, rows: int = 3) -> KvPages:
    nbytes = KvPages.bytes_needed(chosen, count, rows)
    pool = MemoryPool(limit_bytes=nbytes, share=1.0)
    return KvPages(pool.lease(nbytes).acquire(), chosen, count, rows)


def entries(pages: int, seed: int = 0, **fields: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (pages, fields.get("page_tokens", TOKENS), fields.get("channels", CHANNELS))
    drawn = np.random.default_rng(seed).normal(size=(2, *shape)).astype(np.float32)
    drawn[0] *= np.exp(np.random.default_rng(seed + 1).normal(size=shape[-1])).astype(np.float32)  # channels differ
    return torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1])


def read(pages: KvPages, ids: list[int], layer: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    out = [torch.full((len(ids), *pages.spec.entries), math.nan) for _ in range(2)]
    pages.read(ids, layer, out[0], out[1])
    return out[0], out[1]


def bound(grouped: Any, axis: int, levels: int) -> Any:
    """Half a step of each group, and what float32 rounds on the way there and back."""
    wide = grouped.astype(np.float64)
    step = (wide.max(axis, keepdims=True) - wide.min(axis, keepdims=True)) / levels
    ulp = 2.0**-23
    return step * (0.5 + 4 * levels * ulp) + 2 * ulp * np.abs(wide).max(axis, keepdims=True)


@pytest.mark.parametrize(
    ("scheme", "group", "payload"),
    [
        ("fp32", 32, 4 * (2 * 64 * 128) * 4),
        ("bf16", 32, 4 * (2 * 64 * 128) * 2),
        ("int8", 32, 4 * (2 * 64 * 128 + 4 * 256 * 4)),
        ("int8", 64, 4 * (2 * 64 * 128 + 4 * 128 * 4)),
        ("int4", 32, 4 * (64 * 128 + 4 * 256 * 4)),
        ("int4", 64, 4 * (64 * 128 + 4 * 128 * 4)),
    ],
)
def test_bytes_of_a_page_are_the_tables(scheme: str, group: int, payload: int) -> None:
    chosen = KvSpec(scheme, layers=4, channels=128, page_tokens=64, group=group)
    assert chosen.payload_bytes == payload
    assert chosen.page_bytes % 64 == 0 and payload <= chosen.page_bytes < payload + 6 * 64
    bits = {"fp32": 32.0, "bf16": 16.0, "int8": 8 + 64 / group, "int4": 4 + 64 / group}[scheme]
    assert 8 * payload / (4 * 2 * 64 * 128) == bits


@pytest.mark.parametrize(
    "fields",
    [
        {"scheme": "int2"},
        {"layers": 0},
        {"channels": 48},
        {"page_tokens": 16},
        {"group": 0},
        {"group": 33, "channels": 33, "page_tokens": 33},
        {"channels": 2**40, "layers": 2**30},
    ],
)
def test_a_layout_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidSize):
        KvSpec(**{"scheme": "int8", "layers": 1, "channels": 32, "page_tokens": 32, **fields})


def test_fp32_is_exact_and_bf16_is_torchs_own_rounding() -> None:
    keys, values = entries(4)
    for scheme, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        pages = kv_pages(spec(scheme))
        pages.write([1, 2, 3, 4], 1, keys, values)
        got = read(pages, [1, 2, 3, 4], 1)
        assert torch.equal(got[0], keys.to(dtype).float()) and torch.equal(got[1], values.to(dtype).float())


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize("group", [32, 64])
def test_the_error_is_at_most_half_a_step(scheme: str, group: int) -> None:
    chosen = spec(scheme, page_tokens=64, channels=128, group=group)
    pages = kv_pages(chosen)
    keys, values = entries(5, page_tokens=64, channels=128)
    pages.write([1, 2, 3, 4, 5], 0, keys, values)
    got_keys, got_values = (each.numpy() for each in read(pages, [1, 2, 3, 4, 5]))
    for got, true, shape, axis in (
        (got_keys, keys.numpy(), (5, 64 // group, group, 128), 2),
        (got_values, values.numpy(), (5, 64, 128 // group, group), 3),
    ):
        wrong = np.abs(got.reshape(shape).astype(np.float64) - true.reshape(shape))
        assert (wrong <= bound(true.reshape(shape), axis, LEVELS[scheme])).all()
        assert wrong.max() > 0


GROUP_OF_FLOATS = st.lists(st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False), min_size=4, max_size=4)


@settings(max_examples=150, deadline=None)
@given(GROUP_OF_FLOATS, st.sampled_from(["int8", "int4"]))
def test_half_a_step_holds_for_any_finite_group(numbers: list[float], scheme: str) -> None:
    pages = kv_pages(KvSpec(scheme, layers=1, channels=4, page_tokens=4, group=4), count=1, rows=1)
    row = torch.tensor(numbers)
    keys = row.view(1, 4, 1).expand(1, 4, 4).contiguous()  # a range per channel
    values = row.view(1, 1, 4).expand(1, 4, 4).contiguous()  # and one per token
    pages.write([1], 0, keys, values)
    got_keys, got_values = read(pages, [1])
    limit = bound(row.numpy(), 0, LEVELS[scheme]) + LEVELS[scheme] * 2.0**-126  # below it a group counts as constant
    for got in (got_keys[0, :, 0], got_values[0, 0]):
        assert (np.abs(got.numpy().astype(np.float64) - row.numpy()) <= limit).all()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("constant", [0.0, -0.0, 1.5, -3e38, 2.0**-149])
def test_a_constant_group_is_read_back_as_it_was(scheme: str, constant: float) -> None:
    pages = kv_pages(spec(scheme))
    same = torch.full((1, TOKENS, CHANNELS), constant)
    pages.write([1], 0, same, same)
    for got in read(pages, [1]):
        assert torch.equal(got, same.bfloat16().float() if scheme == "bf16" else same)


def test_a_group_of_tiny_range_counts_as_constant() -> None:
    pages = kv_pages(spec("int8"))
    near = torch.full((1, TOKENS, CHANNELS), 0.0)
    near[:, ::2, ::2] = 2.0**-140
    pages.write([1], 0, near, near)
    assert all(torch.equal(got, torch.zeros_like(got)) for got in read(pages, [1]))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", ["keys", "values"])
def test_what_is_not_finite_is_refused_and_not_written(scheme: str, bad: float, which: str) -> None:
    pages = kv_pages(spec(scheme))
    keys, values = entries(1)
    pages.write([1], 0, keys, values)
    before = pages.bytes_of(1)
    (keys if which == "keys" else values)[0, 3, 5] = bad
    with pytest.raises(NotFinite, match=which):
        pages.write([1], 0, keys, values)
    assert pages.bytes_of(1) == before


@pytest.mark.parametrize("scheme", ["bf16", "int8", "int4"])
def test_a_range_that_the_format_cannot_express_is_refused(scheme: str) -> None:
    pages = kv_pages(spec(scheme))
    wide = torch.zeros(1, TOKENS, CHANNELS)
    wide[0, 0], wide[0, 1] = 3.4e38, -3.4e38
    with pytest.raises(NotFinite, match=scheme):
        pages.write([1], 0, wide, wide)


@given(st.lists(st.integers(0, 15), min_size=64, max_size=64))
@settings(max_examples=50, deadline=None)
def test_int4_codes_survive_packing(codes: list[int]) -> None:
    pages = kv_pages(KvSpec("int4", layers=1, channels=8, page_tokens=8, group=8), count=1, rows=1)
    grid = torch.tensor(codes, dtype=torch.float32).view(1, 8, 8)
    grid[0, 0], grid[0, 1], grid[0, :, 0], grid[0, :, 1] = 0, 15, 0, 15  # every group's range is 15: its step is 1
    grid[0, 0, 1], grid[0, 1, 0] = 15, 0
    keys, values = grid.clone(), grid.clone()
    keys[0, 0], keys[0, 1] = 0, 15
    pages.write([1], 0, keys, values)
    got = read(pages, [1])
    assert torch.equal(got[0], keys) and torch.equal(got[1], values)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_pages_bytes_do_not_depend_on_its_neighbours_nor_on_its_place(scheme: str) -> None:
    keys, values = entries(7)
    together, alone = kv_pages(spec(scheme), rows=3), kv_pages(spec(scheme), rows=1)
    together.write([8, 2, 3, 4, 5, 6, 7], 0, keys, values)
    keys[1:] *= 1000
    alone.write([1], 0, keys[:1], values[:1])
    assert together.bytes_of(8) == alone.bytes_of(1)
    assert torch.equal(read(together, [2, 8])[0][1], read(alone, [1])[0][0])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_trash_page_reads_as_zeros_and_cannot_be_written(scheme: str) -> None:
    pages = kv_pages(spec(scheme))
    keys, values = entries(1)
    pages.write([1], 0, keys, values)
    for got in read(pages, [TRASH, 1, TRASH]):
        assert not got[0].any() and got[1].any() and not got[2].any()
    with pytest.raises(InvalidSize, match="page must be from 1"):
        pages.write([TRASH], 0, keys, values)


def test_pages_layers_and_shapes_that_are_not_there_are_named() -> None:
    pages = kv_pages(spec("int8"))
    keys, values = entries(1)
    for ids, layer in (([9], 0), ([-1], 0), ([1], LAYERS), ([1], -1), ([1, 2], 0)):
        with pytest.raises(InvalidSize):
            pages.write(ids, layer, keys, values)
    with pytest.raises(InvalidSize, match=r"keys must be \[up to 3, 32, 64\] float32, not \[1, 31, 64\]"):
        pages.write([1], 0, keys[:, 1:], values)
    with pytest.raises(InvalidSize, match="float64"):
        pages.write([1], 0, keys.double(), values)


def test_layers_do_not_touch_each_other_and_erasing_zeroes_all_of_them() -> None:
    pages = kv_pages(spec("int4"))
    first, second = entries(1, seed=1), entries(1, seed=2)
    pages.write([3], 0, *first)
    before = read(pages, [3], 0)
    pages.write([3], 1, *second)
    assert torch.equal(read(pages, [3], 0)[0], before[0]) and not torch.equal(read(pages, [3], 1)[0], before[0])
    pages.erase(3)
    assert pages.bytes_of(3) == bytes(pages.spec.page_bytes)


class OnlyInPlace(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not type it
    """Finds every operation whose result is new memory."""

    def __init__(self, known: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.fresh: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            # Ids come from Python: they are a few bytes of int64, copied into the scratch.
            is_new = isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self.known
            if is_new and tensor.dtype != torch.int64:
                self.fresh.append(f"{func} {list(tensor.shape)}")
        return result


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_is_allocated_in_the_steady_state(scheme: str) -> None:
    pages = kv_pages(spec(scheme))
    keys, values = entries(4)
    out = torch.empty_like(keys), torch.empty_like(values)
    with OnlyInPlace([pages._pages, keys, values, *out]) as watched:
        pages.write([1, 2, 3, 4], 0, keys, values)
        pages.read([4, 3, 2, 1], 0, *out)
    assert watched.fresh == []


@pytest.fixture
def tails() -> TailPages:
    nbytes = TailPages.bytes_needed(spec("int4"), 3)
    return TailPages(MemoryPool(limit_bytes=nbytes, share=1.0).lease(nbytes).acquire(), spec("int4"), 3)


def test_a_tail_is_exact_and_takes_entries_one_by_one(tails: TailPages) -> None:
    keys, values = (each[0] for each in entries(1))
    for at in range(5):
        tails.write(2, 1, at, keys[at : at + 1], values[at : at + 1])
    assert torch.equal(tails.keys(2, 1)[:5], keys[:5]) and torch.equal(tails.values(2, 1)[:5], values[:5])
    assert not tails.keys(2, 1)[5:].any() and not tails.keys(2, 0).any() and not tails.keys(1, 1).any()
    tails.copy(2, 3, 4)
    assert torch.equal(tails.keys(3, 1)[:4], keys[:4]) and not tails.keys(3, 1)[4:].any()
    tails.erase(2)
    assert not tails.keys(2, 1).any()


def test_a_tail_refuses_what_does_not_fit_and_what_is_not_finite(tails: TailPages) -> None:
    keys, values = (each[0] for each in entries(1))
    for page, at, count in ((TRASH, 0, 1), (4, 0, 1), (1, 31, 2), (1, -1, 1)):
        with pytest.raises(InvalidSize):
            tails.write(page, 0, at, keys[:count], values[:count])
    with pytest.raises(InvalidSize, match="do not fill"):
        tails.write(1, 0, 0, keys[:2], values[:1])
    keys[0, 0] = math.nan
    with pytest.raises(NotFinite):
        tails.write(1, 0, 0, keys[:1], values[:1])
    assert not tails.keys(1, 0).any()


class Causal:
    """A model of two layers whose keys and values depend on all that was encoded before, as it is stored."""

    def __init__(self, store: PageStore) -> None:
        self.store = store
        size = store.full.spec.page_tokens
        self.page = [torch.zeros(1, size, store.full.spec.channels) for _ in range(2 * LAYERS)]

    def encode(self, user: str, events: list[bytes]) -> tuple[list[bytes], int]:
        """The bytes of the history's pages, and how many events were encoded."""
        store = self.store
        scope = Scope("m@1", "s", store.full.spec.scheme, user)
        with store.pages.open(scope, events) as history:
            store.prepare(history)
            layout, size = history.layout, store.full.spec.page_tokens
            for number in range(layout.cached // size, -(-layout.tokens // size)):
                self.fill(layout.full[:number], history.window[number * size : (number + 1) * size], layout, number)
            history.commit()
            pages = [store.full.bytes_of(page) for page in layout.full]
            if layout.tail is not None:
                exact = [store.tails.keys(layout.tail, layer)[: layout.tail_tokens] for layer in range(LAYERS)]
                pages.append(torch.stack(exact).numpy().tobytes())
            return pages, len(history.new)

    def fill(self, before: tuple[int, ...], events: Any, layout: Any, number: int) -> None:
        size = self.store.full.spec.page_tokens
        first = max(0, layout.cached - number * size)
        for layer in range(LAYERS):
            keys, values = self.page[2 * layer : 2 * layer + 2]
            if first:
                keys[0, :first] = self.store.tails.keys(layout.source, layer)[:first]
                values[0, :first] = self.store.tails.values(layout.source, layer)[:first]
            past = sum(float(each.sum()) for each in read(self.store.full, list(before), layer)) if before else 0.0
            for at in range(first, len(events)):
                inside = sum(float(each.sum()) for each in (keys[0, :at], values[0, :at]))
                below = float(self.page[0][0, at].sum()) if layer else 0.0
                keys[0, at], values[0, at] = self.entry(events[at], past + inside + below)
            if len(events) == size:
                self.store.full.write([layout.full[number]], layer, keys, values)
            elif first < len(events):
                kept = keys[0, first : len(events)], values[0, first : len(events)]
                self.store.tails.write(layout.tail, layer, first, *kept)

    def entry(self, event: bytes, context: float) -> torch.Tensor:
        seed = int.from_bytes(hashlib.blake2b(event, digest_size=4).digest(), "little")
        base = np.random.default_rng(seed).normal(size=(2, self.store.full.spec.channels))
        return torch.from_numpy((base + math.sin(context)).astype(np.float32))


def store(scheme: str) -> PageStore:
    chosen = KvSpec(scheme, LAYERS, channels=8, page_tokens=8, group=8)
    pool = MemoryPool(limit_bytes=1 << 20)
    return open_store(pool, chosen, PageConfig(pages=12, tails=4, page_tokens=8, longest=32), rows=2)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_recomputing_gives_the_bits_of_appending(scheme: str) -> None:
    appending = Causal(store(scheme))
    events = [b"e%d" % number for number in range(40)]
    for end in (1, 2, 7, 8, 9, 15, 20, 24, 32, 33, 40):
        appended, new = appending.encode("ann", events[:end])
        recomputed, _ = Causal(store(scheme)).encode("ann", events[:end])
        assert appended == recomputed
        assert new <= max(8, 33 - 16)  # only what was added, or a window that moved
        appending.encode("bob", events[end : end + 5])


@pytest.fixture
def pool() -> Iterator[MemoryPool]:
    made = MemoryPool(limit_bytes=4 << 20)
    yield made
    made.check_integrity()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_pages_that_are_said_to_fit_do(pool: MemoryPool, scheme: str) -> None:
    config = config_that_fits(pool.largest_run_bytes, spec(scheme))
    opened = open_store(pool, spec(scheme), config)
    assert pool.reserved_bytes < spec(scheme).page_bytes + spec(scheme).tail_bytes + 128
    assert opened.full.count == config.pages > config.tails > 2


def test_pages_that_do_not_fit_take_nothing(pool: MemoryPool) -> None:
    with pytest.raises(PoolExhausted):
        open_store(pool, spec("fp32"), PageConfig(pages=1000, tails=2, page_tokens=TOKENS))
    with pytest.raises(PoolExhausted, match="the least"):
        config_that_fits(10_000, spec("fp32"))
    with pytest.raises(InvalidSize, match="page_tokens is 32 in the format and 16"):
        open_store(pool, spec("fp32"), PageConfig(pages=10, tails=2, page_tokens=16))
    with pytest.raises(InvalidSize, match="tail_share"):
        config_that_fits(10_000, spec("fp32"), tail_share=1.0)
    assert pool.used_bytes == 0


def test_a_forgotten_users_bytes_are_zero_afterwards() -> None:
    made = store("int8")
    model = Causal(made)
    model.encode("ann", [b"e%d" % number for number in range(20)])
    assert made.pages.forget("ann") == 3
    assert all(made.full.bytes_of(page) == bytes(made.full.spec.page_bytes) for page in range(13))
    assert not any(made.tails.keys(page, 0).any() for page in range(5))
