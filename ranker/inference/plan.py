"""The capacity plan: from a model, a load and devices to what fits, how fast it is, and what to change if not."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from ranker.inference.plan_advice import Suggestion, to_be_in_time, to_fit
from ranker.inference.plan_device import DevicePlan, plan_device
from ranker.inference.plan_fleet import Fleet, Traffic, plan_fleet
from ranker.inference.plan_largest import largest_batch, largest_context
from ranker.inference.plan_latency import Latency, predict
from ranker.inference.plan_setup import Setup
from ranker.inference.plan_sizes import KvBytes, WeightBytes, kv_bytes, weight_bytes


class Plan(msgspec.Struct, frozen=True):
    """All that `nextaction plan --json` prints.

    Args:
        meets_sla: whether a batch is predicted within the SLA; None without one.
        largest_batch, largest_context: that fit with all else as it is; 0 when not even 1 does.
        kv_copies: devices that hold the same heads of keys and values.
        per_device: each of the devices that hold the model together.
        latency: with the new tokens as given (all of the context when not), and
        cached_latency: when all but a page of each history is in pages already.
        fleet, cached_fleet: for the rate, by either latency; None without a rate.
        to_fit: changes after which it fits, each planned again; empty when it fits, or nothing helps.
        to_meet_sla: the same for the SLA.
    """

    fits: bool
    meets_sla: bool | None
    sla_ms: float | None
    why_not: list[str]
    largest_batch: int
    largest_context: int
    per_device: DevicePlan
    weights: WeightBytes
    kv: KvBytes
    kv_copies: int
    latency: Latency
    cached_latency: Latency
    fleet: Fleet | None
    cached_fleet: Fleet | None
    to_fit: list[Suggestion]
    to_meet_sla: list[Suggestion]
    setup: dict[str, Any]


def plan(setup: Setup, sla_ms: float | None = None, traffic: Traffic | None = None) -> Plan:
    """Plans, and plans again with other options where it does not fit or is too slow."""
    device, latency = plan_device(setup), predict(setup)
    cached = predict(setup.but(new_tokens=min(setup.load.new, setup.formats.page_tokens)))
    late = sla_ms is not None and latency.predicted_ms > sla_ms
    return Plan(
        fits=device.fits,
        meets_sla=None if sla_ms is None else not late,
        sla_ms=sla_ms,
        why_not=device.why_not,
        largest_batch=largest_batch(setup),
        largest_context=largest_context(setup),
        per_device=device,
        weights=weight_bytes(setup),
        kv=kv_bytes(setup),
        kv_copies=setup.kv_copies,
        latency=latency,
        cached_latency=cached,
        fleet=None if traffic is None else plan_fleet(setup, latency, traffic),
        cached_fleet=None if traffic is None else plan_fleet(setup, cached, traffic),
        to_fit=[] if device.fits else to_fit(setup),
        to_meet_sla=to_be_in_time(setup, sla_ms) if sla_ms is not None and late else [],
        setup=asdict(setup),
    )
