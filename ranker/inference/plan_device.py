"""Whether it all fits on a device: share × memory ≥ reserved + weights + a pool per batch in flight."""

from __future__ import annotations

import msgspec

from ranker.inference.plan_numbers import GIB, PlanError
from ranker.inference.plan_setup import Setup
from ranker.inference.plan_sizes import TAILS_OF_A_HISTORY, kv_bytes, weight_bytes, workspace_bytes
from ranker.inference.sizes import LARGEST


class DevicePlan(msgspec.Struct, frozen=True):
    """One device of those that hold the model together; bytes.

    Args:
        allowed_bytes: the share of the device, for everything.
        reserved_bytes: context, libraries, captured graphs.
        weights_bytes: with the replicated parts.
        pool_bytes: for workspaces and pages: as given per batch in flight, or what the share leaves.
        workspace_bytes: of all batches in flight.
        pages, tail_pages: that the batches in flight need, the two trash pages included, and
        pages_bytes: what they take, with the scratch that quantising needs.
        needed_bytes: reserved + weights + workspaces + pages.
        pool_left_bytes: of the pool, for histories that no batch uses now; negative when it is too small.
        headroom_bytes: of the share, beyond reserved, weights and pool (beyond what is needed when the pool is what
            is left); negative when it does not fit.
        kept_histories: whole ones that stay encoded beside those in use.
    """

    device_bytes: int
    allowed_bytes: int
    reserved_bytes: int
    weights_bytes: int
    pool_bytes: int
    workspace_bytes: int
    pages: int
    tail_pages: int
    pages_bytes: int
    needed_bytes: int
    pool_left_bytes: int
    headroom_bytes: int
    kept_histories: int
    fits: bool
    why_not: list[str]


def plan_device(setup: Setup) -> DevicePlan:
    """Places everything on one device.

    Raises:
        PlanError: more bytes than can be addressed.
    """
    devices, flights = setup.devices, setup.load.batches_in_flight
    allowed = int(devices.share * devices.total_bytes)
    weights, kv = weight_bytes(setup).per_device, kv_bytes(setup)
    pages, tails = page_counts(setup)
    taken = flights * workspace_bytes(setup), pages * kv.page + tails * kv.tail_page + kv.scratch
    outside = devices.reserved_bytes + weights
    if outside + sum(taken) > LARGEST:
        raise PlanError("batch", setup.load.batch, f"with --context {setup.load.context} needs more than 2^63-1 bytes")
    given = devices.pool_gib_per_batch
    pool = flights * int(given * GIB) if given is not None else max(0, allowed - outside)
    pool_left = (pool if given is not None else allowed - outside) - sum(taken)
    headroom = allowed - outside - (pool if given is not None else sum(taken))
    return DevicePlan(
        device_bytes=devices.total_bytes,
        allowed_bytes=allowed,
        reserved_bytes=devices.reserved_bytes,
        weights_bytes=weights,
        pool_bytes=pool,
        workspace_bytes=taken[0],
        pages=pages,
        tail_pages=tails,
        pages_bytes=taken[1],
        needed_bytes=outside + sum(taken),
        pool_left_bytes=pool_left,
        headroom_bytes=headroom,
        kept_histories=max(0, pool_left // kv.history),
        fits=headroom >= 0 and pool_left >= 0,
        why_not=_why_not(setup, allowed - outside, headroom, pool_left),
    )


def page_counts(setup: Setup) -> tuple[int, int]:
    """Full and tail pages of the batches in flight, each with its trash page."""
    histories = setup.load.batch * setup.load.batches_in_flight
    full = setup.load.context // setup.formats.page_tokens
    return histories * full + 1, histories * TAILS_OF_A_HISTORY + 1


def _why_not(setup: Setup, left: int, headroom: int, pool_left: int) -> list[str]:
    share = f"{setup.devices.share:g} of {setup.devices.device_gib:g} GiB"
    if left < 0:
        return [f"the weights exceed the share ({share}) by {gib(-left)} on each device"]
    if setup.devices.pool_gib_per_batch is None:
        return [f"workspaces and pages exceed what the share ({share}) leaves by {gib(-headroom)}"] * (headroom < 0)
    pool = f"--pool-gib-per-batch {setup.devices.pool_gib_per_batch:g}"
    return [
        *[f"the pools ({pool}) exceed what the share ({share}) leaves by {gib(-headroom)}"] * (headroom < 0),
        *[f"a batch needs more than its pool ({pool}): {gib(-pool_left)} too much"] * (pool_left < 0),
    ]


def gib(nbytes: float) -> str:
    """`1.50 GiB`, or MiB where that is too small to see."""
    return f"{nbytes / GIB:,.2f} GiB" if abs(nbytes) >= GIB / 10 else f"{nbytes / (1 << 20):,.2f} MiB"
