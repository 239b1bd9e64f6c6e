"""The plan of a 70B model, against arithmetic done by hand, and against what our own pages take."""

from __future__ import annotations

import math

import pytest

from ranker.inference.kv_pages import KvPages, TailPages
from ranker.inference.memory_errors import InvalidSize
from ranker.inference.page_store import open_store
from ranker.inference.pages import PageConfig
from ranker.inference.plan import plan
from ranker.inference.plan_device import page_counts, plan_device
from ranker.inference.plan_fleet import Traffic, plan_fleet
from ranker.inference.plan_latency import predict
from ranker.inference.plan_numbers import PlanError
from ranker.inference.plan_rates import Rates
from ranker.inference.plan_setup import Devices, Formats, Load, Model, Setup
from ranker.inference.plan_sizes import kv_bytes, weight_bytes, workspace_bytes
from ranker.inference.pool import MemoryPool
from ranker.inference.sizes import ALIGNMENT

GIB = 1 << 30
LLAMA = Model(params=70_000_000_000, layers=80, hidden=8192, kv_heads=8, head_dim=128)
ROUND = Rates(
    tflops=1000.0,
    gb_per_s=4000.0,
    link_gb_per_s=400.0,
    compute_efficiency=0.5,
    bandwidth_efficiency=0.5,
    link_latency_us=10.0,
)
"""Each device: 500 TFLOP/s, 2000 GB/s, 200 GB/s to the others."""


def large(**changes: object) -> Setup:
    """70B, int4, a batch of 4 at 4,096, on two devices of 80 GiB."""
    setup = Setup(LLAMA, Formats(weights="int4", kv="int4"), Load(4096, batch=4), Devices(2, 80.0, 0.85, rates=ROUND))
    return setup.but(**changes)


def test_weights_are_split_and_the_norms_are_on_every_device() -> None:
    # norms: (2·80 + 1) · 8192 = 1,318,912 numbers of 2 bytes = 2,637,824 bytes on each device
    # the rest: 70e9 − 1,318,912 = 69,998,681,088 weights; half a byte each 34,999,340,544;
    # 546,864,696 groups of 128, 4 bytes each: 2,187,458,784
    found = weight_bytes(large())
    assert (found.codes, found.metadata, found.replicated) == (34_999_340_544, 2_187_458_784, 2_637_824)
    assert found.bits_per_weight == 4.25
    assert found.per_device == 37_186_799_328 // 2 + 2_637_824
    assert found.bytes == 37_186_799_328 + 2 * 2_637_824
    whole = weight_bytes(large(weights="bf16", devices=1))
    assert whole.bytes == whole.per_device == 140_000_000_000 and whole.metadata == 0


@pytest.mark.parametrize(
    ("kv", "group", "metadata_bits", "bits"),
    [
        ("int4", 32, 16, 5.0),
        ("int4", 64, 16, 4.5),
        ("int4", 32, 32, 6.0),
        ("int4", 64, 32, 5.0),
        ("int8", 32, 16, 9.0),
        ("int8", 64, 32, 9.0),
        ("bf16", 32, 16, 16.0),
        ("fp32", 32, 32, 32.0),
    ],
)
def test_bits_per_key_and_value_with_their_metadata(kv: str, group: int, metadata_bits: int, bits: float) -> None:
    found = kv_bytes(large(kv=kv, kv_group=group, kv_metadata_bits=metadata_bits, page_tokens=64))
    assert found.bits_per_number == bits
    # 2 · 80 layers · 1024 channels = 163,840 numbers a token
    assert found.per_token == 163_840 * bits / 8
    assert found.page == 64 * 81_920 * bits / 8
    assert found.tail_page == 64 * 81_920 * 4


def test_keys_and_values_of_a_history() -> None:
    # 163,840 numbers of 5 bits = 102,400 bytes a token, half of it per device; 4096 tokens = 128 pages of 32
    # a device's page: 32 · 51,200 = 1,638,400; its exact tail: 32 · 81,920 · 4 = 10,485,760
    found = kv_bytes(large())
    assert (found.per_token, found.per_token_per_device, found.page) == (102_400, 51_200, 1_638_400)
    assert found.history == 128 * 1_638_400 + 10_485_760
    assert page_counts(large()) == (4 * 128 + 1, 4 * 2 + 1)


def test_more_devices_than_heads_hold_copies_of_keys_and_values() -> None:
    spread = large(devices=16)
    assert (spread.kv_copies, spread.channels_per_device) == (2, 128)
    assert kv_bytes(spread).per_token == 2 * 102_400
    assert kv_bytes(large(devices=8)).per_token == 102_400


def test_the_workspace_is_that_of_the_largest_pass() -> None:
    # attention of a layer: 2 · 8192 · 128 · (64 + 8) = 150,994,944; (875,000,000 − that) / (3 · 8192) = 29,459
    assert LLAMA.ffn_width == 29_459
    # chunk of 2048: residual and norm 2·2048·8192 = 33,554,432; split: 2·2048·(72·128 + 29,459) / 2 = 79,206,400
    # one layer of 4 histories, keys and values of 512 channels: 2·4·4096·512 = 16,777,216; 2 bytes each
    assert workspace_bytes(large()) == 2 * (33_554_432 + 79_206_400 + 16_777_216)
    assert workspace_bytes(large(new_tokens=1)) == workspace_bytes(large()), "a history that nobody cached may come"


def test_the_whole_of_a_device() -> None:
    found = plan_device(large())
    weights = 37_186_799_328 // 2 + 2_637_824
    workspace = 259_076_096
    assert found.allowed_bytes == int(0.85 * 80 * GIB) == 73_014_444_032
    assert found.pool_bytes == 73_014_444_032 - GIB - weights
    assert found.workspace_bytes == workspace
    pages = 513 * 1_638_400 + 9 * 10_485_760 + kv_bytes(large()).scratch
    assert found.pages_bytes == pages
    assert found.headroom_bytes == found.pool_left_bytes == found.pool_bytes - workspace - pages
    assert found.kept_histories == found.pool_left_bytes // (128 * 1_638_400 + 10_485_760)
    assert found.fits and found.why_not == []


def test_a_pool_per_batch_is_set_apart() -> None:
    found = plan_device(large(pool_gib_per_batch=32.0))
    assert found.pool_bytes == 32 * GIB
    assert found.headroom_bytes == found.allowed_bytes - GIB - found.weights_bytes - 32 * GIB
    assert found.pool_left_bytes == 32 * GIB - found.workspace_bytes - found.pages_bytes
    assert found.fits
    # two of them: 1 + 17.3 + 64 GiB exceed the 68 that the share allows
    twice = plan_device(large(pool_gib_per_batch=32.0, batches_in_flight=2))
    assert not twice.fits and "the pools" in twice.why_not[0]
    small = plan_device(large(pool_gib_per_batch=1.0))
    assert not small.fits and "more than its pool" in small.why_not[0]


def test_weights_alone_may_be_too_much() -> None:
    found = plan_device(large(weights="bf16", devices=1))
    assert not found.fits and found.pool_bytes == 0
    # 140e9 + 1 GiB − 73,014,444,032 bytes = 63.39 GiB
    assert found.why_not == ["the weights exceed the share (0.85 of 80 GiB) by 63.39 GiB on each device"]


def test_encoding_is_bound_by_arithmetic_and_follows_the_formula() -> None:
    # 16,384 tokens · 2 · 70e9 = 2.29376e15 FLOP
    # pairs: 4 · 4096 · 4097 / 2 = 33,562,624, · 4 · 80 · 64 · 128 = 8.7983e13
    found = predict(large()).encode
    assert found.flops == 2 * 70e9 * 16_384 + 4 * 80 * 64 * 128 * 33_562_624
    assert found.compute_ms == pytest.approx(found.flops / (2 * 500e12) * 1e3)
    assert (found.bound, found.passes) == ("compute", 8)
    # two all-reduces a layer, 2 · (1/2) · 16,384 · 8192 numbers of 2 bytes; 8 passes · 160 exchanges of 10 µs
    assert found.exchange_ms == pytest.approx(160 * 16_384 * 8192 * 2 / 200e9 * 1e3 + 8 * 160 * 0.01)
    assert found.total_ms == found.compute_ms + found.exchange_ms


def test_decoding_one_at_a_time_is_bound_by_memory() -> None:
    # each of 10 passes reads a device's weights and the pages of 4 histories
    found = predict(large(candidates=10, micro_batch=1)).score
    read = 10 * (weight_bytes(large()).per_device + 4 * 4096 * 51_200)
    assert (found.passes, found.tokens, found.bound) == (10, 40, "memory")
    assert found.bytes_per_device == read
    assert found.memory_ms == pytest.approx(read / 2000e9 * 1e3)
    assert found.flops == 2 * 70e9 * 40 + 4 * 80 * 64 * 128 * 40 * 4097


def test_one_device_exchanges_nothing_and_a_batch_that_does_nothing_takes_no_time() -> None:
    idle = large(devices=1, new_tokens=0, candidates=0)
    assert predict(idle).predicted_ms == 0.0
    assert plan(idle, sla_ms=1.0, traffic=Traffic(10.0)).fleet is None
    assert predict(large(devices=1)).encode.exchange_ms == 0.0


def test_what_is_cached_is_not_encoded_again() -> None:
    found = predict(large(new_tokens=96)).encode
    pairs = 4 * (4096 * 4097 - 4000 * 4001) // 2
    assert found.flops == 2 * 70e9 * 4 * 96 + 4 * 80 * 64 * 128 * pairs


def test_the_fleet_of_a_million_requests_a_second() -> None:
    setup = large(new_tokens=32)
    latency = predict(setup)
    traffic = Traffic(1e6, utilisation=0.5, request_bytes=400, answer_bytes=600, event_bytes=1000, log_bytes=5000)
    found = plan_fleet(setup, latency, traffic)
    assert found is not None
    assert found.replicas == math.ceil(1e6 / (0.5 * 4 / (latency.predicted_ms / 1e3)))
    assert found.devices == 2 * found.replicas
    assert (found.network_in_bytes_per_s, found.network_out_bytes_per_s) == (1.4e9, 0.6e9)
    assert (found.network_bytes_per_s, found.log_bytes_per_s) == (2e9, 5e9)
    assert found.log_bytes_per_day == 5e9 * 86_400


@pytest.mark.parametrize("kv", ["fp32", "bf16", "int8", "int4"])
def test_pages_are_planned_as_our_own_are_laid_out(kv: str) -> None:
    model = Model(params=10**7, layers=3, hidden=128, kv_heads=2, head_dim=64)
    setup = Setup(model, Formats(kv=kv, kv_metadata_bits=32), Load(96, batch=5), Devices(1, 1.0))
    spec, found = setup.kv_spec, kv_bytes(setup)
    pages, tails = page_counts(setup)
    assert found.page == spec.payload_bytes
    assert spec.page_bytes - found.page < len(spec.block) * ALIGNMENT
    taken = KvPages.bytes_needed(spec, pages - 1) + TailPages.bytes_needed(spec, tails - 1)
    planned = plan_device(setup).pages_bytes
    assert planned <= taken <= planned + (pages + tails + 2) * len(spec.block) * ALIGNMENT
    pool = MemoryPool(limit_bytes=planned + (pages + tails + 2) * len(spec.block) * ALIGNMENT, share=1.0)
    store = open_store(pool, spec, PageConfig(pages - 1, tails - 1, longest=96))
    assert store.pages.counts()["full"].empty == 5 * 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"devices": 3}, "--devices must divide the 64 heads of queries, not 3"),
        ({"kv_heads": 7}, "--kv-heads must divide the 64 heads of queries, not 7"),
        ({"head_dim": 120}, "--hidden must be a multiple of --head-dim 120 unless --heads is given, not 8192"),
        ({"weights": "int3"}, "--weights must be one of fp32, bf16, fp16, fp8, int8, int4, not 'int3'"),
        ({"kv": "fp16"}, "--kv must be one of fp32, bf16, int8, int4, not 'fp16'"),
        ({"kv_group": 64}, "--page-tokens must be a multiple of --kv-group 64, not 32"),
        ({"kv_metadata_bits": 8}, "--kv-metadata-bits must be 16 or 32, not 8"),
        ({"new_tokens": 5000}, "--new-tokens must be at most --context 4096, not 5000"),
        ({"share": math.nan}, "--share must be above 0 and at most 1, not nan"),
        ({"share": 1.01}, "--share must be above 0 and at most 1, not 1.01"),
        ({"batch": 0}, "--batch must be a whole number from 1 to 1099511627776, not 0"),
        ({"batch": 2**40, "context": 2**40}, "2^63-1 bytes"),
        ({"params": 1e400}, "--params must be a whole number from 1 to 1000000000000000000, not inf"),
    ],
)
def test_what_cannot_be_is_named_with_its_option(changes: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_device(large(**changes))
    assert said in str(caught.value)
    assert isinstance(caught.value, InvalidSize)


def test_a_group_that_does_not_divide_a_devices_channels_is_named() -> None:
    model = Model(params=10**7, layers=2, hidden=96, kv_heads=2, head_dim=48)
    with pytest.raises(PlanError, match=r"--kv-group must divide the 48 channels"):
        Setup(model, Formats(kv="int4"), Load(64), Devices(2))
