"""What holds of every plan: more of anything never needs less, the largest is the largest, advice is true."""

from __future__ import annotations

import shlex
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ranker.inference.plan import Plan, plan
from ranker.inference.plan_advice import Suggestion
from ranker.inference.plan_device import plan_device
from ranker.inference.plan_fleet import Traffic, plan_fleet
from ranker.inference.plan_largest import largest
from ranker.inference.plan_latency import predict
from ranker.inference.plan_setup import EXACT_BITS, WEIGHT_BITS, Devices, Formats, Load, Model, Setup
from ranker.inference.plan_sizes import KV_BITS


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    """Models of 10 thousand to a trillion parameters on 1 to 16 devices."""
    kv_heads, per_kv = draw(st.sampled_from((1, 2, 8))), draw(st.sampled_from((1, 4, 8)))
    head_dim = draw(st.sampled_from((32, 64, 128)))
    heads = kv_heads * per_kv
    devices = draw(st.sampled_from([n for n in (1, 2, 4, 8, 16) if heads % n == 0]))
    context = draw(st.integers(1, 20_000))
    return Setup(
        Model(draw(st.integers(10_000, 10**12)), draw(st.integers(1, 100)), heads * head_dim, kv_heads, head_dim),
        Formats(
            draw(st.sampled_from(sorted(WEIGHT_BITS))),
            kv=draw(st.sampled_from(sorted(KV_BITS))),
            tail=draw(st.sampled_from(sorted(EXACT_BITS))),
            activations=draw(st.sampled_from(sorted(EXACT_BITS))),
        ),
        Load(
            context,
            draw(st.integers(1, 300)),
            draw(st.integers(1, 3)),
            draw(st.none() | st.integers(0, context)),
            draw(st.integers(0, 200)),
            draw(st.none() | st.integers(1, 60)),
        ),
        Devices(
            devices,
            draw(st.floats(1.0, 200.0)),
            draw(st.floats(0.05, 1.0)),
            pool_gib_per_batch=draw(st.none() | st.floats(0.01, 60.0)),
        ),
    )


def turned(setup: Setup, found: Suggestion) -> Setup:
    """The setup with a suggestion's options, as a person would type them."""
    words = shlex.split(str(found))
    options: dict[str, Any] = {
        name.removeprefix("--").replace("-", "_"): value for name, value in zip(words[::2], words[1::2], strict=True)
    }
    numbers = {name: value for name, value in options.items() if name not in ("weights", "kv")}
    read = {name: float(value) if "gib" in name else int(value) for name, value in numbers.items()}
    return setup.but(**{**options, **read})


@given(setups(), st.integers(1, 50))
def test_memory_grows_with_batch_context_and_parameters(setup: Setup, more: int) -> None:
    needed = plan_device(setup).needed_bytes
    assert plan_device(setup.but(batch=setup.load.batch + more)).needed_bytes > needed
    assert plan_device(setup.but(context=setup.load.context + more)).needed_bytes >= needed
    assert plan_device(setup.but(params=setup.model.params + more * 10**6)).needed_bytes >= needed
    assert plan_device(setup.but(batches_in_flight=setup.load.batches_in_flight + 1)).needed_bytes > needed


@given(setups(), st.integers(1, 50))
def test_time_grows_with_batch_context_parameters_and_candidates(setup: Setup, more: int) -> None:
    took = predict(setup).predicted_ms * (1 - 1e-12)
    assert predict(setup.but(batch=setup.load.batch + more)).predicted_ms >= took
    assert predict(setup.but(context=setup.load.context + more)).predicted_ms >= took
    assert predict(setup.but(params=setup.model.params + more * 10**6)).predicted_ms >= took
    micro = setup.load.scored_at_once or None
    assert predict(setup.but(candidates=setup.load.candidates + more, micro_batch=micro)).predicted_ms >= took


@given(setups())
def test_what_fits_is_within_the_share_and_what_does_not_says_why(setup: Setup) -> None:
    found = plan_device(setup)
    within = found.needed_bytes <= found.allowed_bytes <= setup.devices.share * found.device_bytes
    assert not found.fits or within
    assert bool(found.why_not) is not found.fits
    if found.fits and setup.devices.pool_gib_per_batch is not None:
        held = found.reserved_bytes + found.weights_bytes + found.pool_bytes
        assert held <= found.allowed_bytes
        assert found.workspace_bytes + found.pages_bytes <= found.pool_bytes


@settings(max_examples=60)
@given(setups())
def test_the_largest_fits_and_one_more_does_not(setup: Setup) -> None:
    found = plan(setup)
    for name, most in (("batch", found.largest_batch), ("context", found.largest_context)):
        kept = setup.but(new_tokens=None)
        assert not plan_device(kept.but(**{name: most + 1})).fits
        assert most == 0 or plan_device(kept.but(**{name: most})).fits
    assert (found.largest_batch >= setup.load.batch) is found.fits
    assert (found.largest_context >= setup.load.context) is found.fits


@settings(max_examples=60)
@given(setups(), st.floats(0.1, 1e5))
def test_every_suggestion_does_what_it_says(setup: Setup, sla_ms: float) -> None:
    found = plan(setup, sla_ms)
    for each in found.to_fit:
        assert plan_device(turned(setup, each)).fits and not found.fits
    for each in found.to_meet_sla:
        then = turned(setup, each)
        assert plan_device(then).fits and predict(then).predicted_ms <= sla_ms
        assert found.meets_sla is False
    assert (found.meets_sla is True) is (found.latency.predicted_ms <= sla_ms)


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_the_largest_number_is_found(bound: int, most: int) -> None:
    assert largest(lambda number: number <= bound, most) == min(bound, most)


@given(setups(), st.floats(0.1, 1e7), st.floats(0.1, 1.0))
def test_the_fleet_carries_its_rate_and_one_replica_less_does_not(setup: Setup, rps: float, used: float) -> None:
    latency = predict(setup)
    assume(latency.requests_per_s > 0)
    fleet = plan_fleet(setup, latency, Traffic(rps, used))
    assert fleet is not None
    each = used * latency.requests_per_s
    assert fleet.replicas * each >= rps * (1 - 1e-9)
    assert (fleet.replicas - 1) * each <= rps * (1 + 1e-9)


def small() -> Setup:
    """bf16 on one device of 80 GiB, which 70B does not fit."""
    model = Model(params=70_000_000_000, layers=80, hidden=8192, kv_heads=8, head_dim=128)
    return Setup(model, Formats(), Load(4096, 4), Devices(1, 80.0))


def told(found: Plan) -> list[str]:
    return [str(each) for each in found.to_fit]


def test_knobs_that_help_are_named_and_those_that_do_not_are_left_out() -> None:
    # 140 GB of bf16 need 130.4 GiB; int8 about 67.2 of the 67 that are left; int4 about 34.6
    assert told(plan(small())) == ["--weights int4", "--devices 4"]


def test_when_no_knob_is_enough_several_are_turned_together() -> None:
    # 0.85 · 3 GiB − 1 GiB reserved leave 1.55 GiB; over 64 devices, the most, bf16 takes 2.04 and int4 0.54 GiB
    found = plan(small().but(device_gib=3.0))
    assert told(found) == ["--weights int4 --devices 64"]


def test_a_pool_that_is_too_small_for_its_batch_gets_the_size_that_it_needs() -> None:
    setup = small().but(weights="int4", kv="int4", devices=2, pool_gib_per_batch=1.0)
    said = told(plan(setup))
    assert "--batch 3" in said and "--pool-gib-per-batch 1.12" in said


def test_what_nothing_helps_gets_no_advice() -> None:
    assert plan(small().but(device_gib=0.01)).to_fit == []


def test_a_promise_that_is_missed_says_how_much_may_be_new() -> None:
    setup = small().but(weights="int4", devices=2)
    found = plan(setup, sla_ms=150.0)
    assert found.meets_sla is False and found.cached_latency.predicted_ms < 150.0
    assert [list(each.options) for each in found.to_meet_sla] == [["--new-tokens"]]
