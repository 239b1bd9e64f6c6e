"""Which knob to turn when a plan does not fit or is too slow; each suggestion has been planned again, and is enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ranker.inference.plan_device import plan_device
from ranker.inference.plan_largest import largest, largest_batch, largest_context, shortened
from ranker.inference.plan_latency import predict
from ranker.inference.plan_numbers import GIB, PlanError, option
from ranker.inference.plan_setup import MOST_DEVICES, WEIGHT_BITS, Setup
from ranker.inference.plan_sizes import KV_BITS

Change = Mapping[str, Any]

SMALLER: tuple[Change, ...] = ({"weights": "int4"}, {"kv": "int4"}, {"batches_in_flight": 1}, {"batch": 1})
"""What is summed up, in this order, when no single change is enough."""


class Suggestion(msgspec.Struct, frozen=True):
    """Options to change, and what the plan is then.

    Args:
        options: as on the command line.
        headroom_bytes: per device, and
        predicted_ms: of the changed plan.
    """

    options: dict[str, Any]
    headroom_bytes: int
    predicted_ms: float

    def __str__(self) -> str:
        return " ".join(f"{name} {value}" for name, value in self.options.items())


def to_fit(setup: Setup) -> list[Suggestion]:
    """Single changes that make it fit; when there is none, the first sum of changes that does."""
    single = [found for change in _memory_knobs(setup) if (found := _tried(setup, change, None))]
    return single or _summed(setup, SMALLER, None)


def to_be_in_time(setup: Setup, sla_ms: float) -> list[Suggestion]:
    """Single changes that fit and are predicted within the SLA."""
    single = [found for change in _speed_knobs(setup, sla_ms) if (found := _tried(setup, change, sla_ms))]
    page = min(setup.formats.page_tokens, setup.load.new)
    return single or _summed(setup, ({"new_tokens": page}, *SMALLER), sla_ms)


def _memory_knobs(setup: Setup) -> Iterator[Change]:
    yield from _narrower(setup)
    yield from _larger_groups(setup)
    if setup.load.batches_in_flight > 1:
        yield {"batches_in_flight": largest(lambda count: _fits(setup, {"batches_in_flight": count}), 1024)}
    yield {"batch": largest_batch(setup)}
    context = largest_context(setup)
    if context:
        new = shortened(setup, context).load.new_tokens
        yield {"context": context, **({} if new is None else {"new_tokens": new})}
    yield from _first_more_devices(setup, lambda change: _fits(setup, change))
    yield from _pools(setup)


def _narrower(setup: Setup) -> Iterator[Change]:
    for weights in ("int8", "int4"):
        if WEIGHT_BITS[weights] < WEIGHT_BITS[setup.formats.weights]:
            yield {"weights": weights}
    for kv in ("int8", "int4"):
        if KV_BITS[kv] < KV_BITS[setup.formats.kv]:
            yield {"kv": kv}


def _larger_groups(setup: Setup) -> Iterator[Change]:
    formats = setup.formats
    if formats.kv == "int4" and formats.kv_group < 64:
        yield {"kv_group": 64, "page_tokens": max(64, formats.page_tokens)}


def _pools(setup: Setup) -> Iterator[Change]:
    """The pool that a batch needs, to two decimals upwards."""
    given = setup.devices.pool_gib_per_batch
    if given is None:
        return
    free = plan_device(setup.but(pool_gib_per_batch=None))
    flights = setup.load.batches_in_flight
    needed = -(-100 * (free.workspace_bytes + free.pages_bytes) // (flights * GIB)) / 100
    yield {"pool_gib_per_batch": needed}


def _speed_knobs(setup: Setup, sla_ms: float) -> Iterator[Change]:
    yield from _first_more_devices(setup, lambda change: _tried(setup, change, sla_ms) is not None)
    yield {"batch": largest(lambda batch: _in_time(setup, {"batch": batch}, sla_ms), setup.load.batch)}
    new = largest(lambda new: _in_time(setup, {"new_tokens": new}, sla_ms), max(1, setup.load.new - 1))
    yield {"new_tokens": new}
    if setup.load.scored_at_once < setup.load.candidates:
        yield {"micro_batch": setup.load.candidates}
    candidates = setup.load.candidates
    yield {"candidates": largest(lambda some: _in_time(setup, {"candidates": some}, sla_ms), max(1, candidates - 1))}
    yield from _narrower(setup)


def _first_more_devices(setup: Setup, reached: Callable[[Change], bool]) -> Iterator[Change]:
    """The next number of devices that divides the heads and is enough."""
    heads = setup.model.query_heads
    for count in range(setup.devices.devices + 1, min(heads, MOST_DEVICES) + 1):
        if heads % count == 0 and reached({"devices": count}):
            yield {"devices": count}
            return


def _summed(setup: Setup, steps: Sequence[Change], sla_ms: float | None) -> list[Suggestion]:
    """One step after the other, each with more devices where that is not enough, until it is reached."""
    changes: dict[str, Any] = {}
    for step in steps:
        changes |= _narrowing(setup, step)
        found = _tried(setup, changes, sla_ms) or _with_more_devices(setup, changes, sla_ms)
        if found is not None:
            return [found]
    return []


def _with_more_devices(setup: Setup, changes: Change, sla_ms: float | None) -> Suggestion | None:
    def tried(more: Change) -> Suggestion | None:
        return _tried(setup, {**changes, **more}, sla_ms)

    return next((tried(more) for more in _first_more_devices(setup, lambda more: tried(more) is not None)), None)


def _narrowing(setup: Setup, step: Change) -> Change:
    (name, value), *_ = step.items()
    if name == "weights" and WEIGHT_BITS[setup.formats.weights] <= WEIGHT_BITS[value]:
        return {}
    if name == "kv" and KV_BITS[setup.formats.kv] <= KV_BITS[value]:
        return {}
    if name in ("batch", "batches_in_flight") and getattr(setup.load, name) == value:
        return {}
    return step


def _changed(setup: Setup, change: Change) -> Setup | None:
    """None for what cannot be."""
    try:
        return setup.but(**change)
    except PlanError:
        return None


def _fits(setup: Setup, change: Change) -> bool:
    changed = _changed(setup, change)
    return changed is not None and plan_device(changed).fits


def _in_time(setup: Setup, change: Change, sla_ms: float) -> bool:
    changed = _changed(setup, change)
    return changed is not None and predict(changed).predicted_ms <= sla_ms


def _tried(setup: Setup, change: Change, sla_ms: float | None) -> Suggestion | None:
    changed = _changed(setup, change)
    if not change or changed is None or changed == setup:
        return None
    device, latency = plan_device(changed), predict(changed)
    if not device.fits or (sla_ms is not None and latency.predicted_ms > sla_ms):
        return None
    options = {option(name): value for name, value in change.items()}
    return Suggestion(options, device.headroom_bytes, latency.predicted_ms)
