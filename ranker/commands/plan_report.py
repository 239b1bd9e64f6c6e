"""A plan as tables."""

from __future__ import annotations

from rich.table import Table

from ranker.inference.plan import Plan
from ranker.inference.plan_device import gib
from ranker.inference.plan_fleet import Fleet
from ranker.inference.plan_latency import Latency
from ranker.terminal import plain, stdout


def show(plan: Plan) -> None:
    """Memory, speed, fleet, and what to change."""
    console = stdout()
    console.print(_memory(plan))
    console.print(_verdict(plan))
    console.print(_speed(plan))
    console.print(_promise(plan))
    if plan.fleet is not None and plan.cached_fleet is not None:
        console.print(_fleet(plan.fleet, plan.cached_fleet))
    for heading, found, needed in (
        ("makes it fit", plan.to_fit, not plan.fits),
        ("meets the SLA", plan.to_meet_sla, plan.meets_sla is False),
    ):
        for each in found:
            left = f"{gib(each.headroom_bytes)} of headroom, {each.predicted_ms:,.1f} ms"
            console.print(plain(f"{heading}, planned again: {each} ({left})"))
        if needed and not found:
            console.print(f"nothing that was tried {heading}")


def _memory(plan: Plan) -> Table:
    device, kv, weights, setup = plan.per_device, plan.kv, plan.weights, plan.setup
    devices, load, formats = setup["devices"], setup["load"], setup["formats"]
    table = Table("each device", title=f"memory of each of {devices['devices']} devices", title_justify="left")
    table.add_column("bytes", justify="right")
    table.add_column("what")
    histories = load["batch"] * load["batches_in_flight"]
    copies = f"; {plan.kv_copies} devices have the same heads" if plan.kv_copies > 1 else ""
    rows = (
        ("device", device.device_bytes, ""),
        ("may be used", device.allowed_bytes, f"share {devices['share']:g}"),
        ("reserved", device.reserved_bytes, "context, libraries, captured graphs"),
        ("weights", device.weights_bytes, f"{formats['weights']}, {weights.bits_per_weight:g} bits each, "
         f"{gib(weights.bytes)} in all, of which {gib(weights.replicated)} on every device"),
        ("pool", device.pool_bytes, "what is left" if devices["pool_gib_per_batch"] is None else
         f"{devices['pool_gib_per_batch']:g} GiB per batch in flight"),
        ("  workspace", device.workspace_bytes, f"batches in flight: {load['batches_in_flight']}"),
        ("  pages", device.pages_bytes, f"{device.pages:,} of {gib(kv.page)} ({formats['kv']}, "
         f"{kv.bits_per_number:g} bits) and {device.tail_pages:,} exact ones of {gib(kv.tail_page)}, for {histories:,} "
         f"histories of {load['context']:,}{copies}"),
        ("  left in the pool", device.pool_left_bytes, f"{device.kept_histories:,} more histories stay encoded"),
        ("headroom", device.headroom_bytes, "of the share"),
    )  # fmt: skip
    for name, nbytes, what in rows:
        table.add_row(name, gib(nbytes), plain(what))
    return table


def _verdict(plan: Plan) -> str:
    load = plan.setup["load"]
    verdict = "fits" if plan.fits else f"does not fit: {'; '.join(plan.why_not)}"
    batch = f"largest batch {plan.largest_batch:,} at context {load['context']:,}"
    return plain(f"{verdict}. {batch}; largest context {plan.largest_context:,} at batch {load['batch']:,}")


def _speed(plan: Plan) -> Table:
    table = Table("phase", title="one batch, predicted", title_justify="left")
    for name in ("tokens", "passes", "TFLOP", "compute ms", "memory ms", "exchange ms", "ms"):
        table.add_column(name, justify="right")
    shown = {plan.latency.new_tokens: plan.latency, plan.cached_latency.new_tokens: plan.cached_latency}
    for latency in shown.values():
        _add_phases(table, latency)
    return table


def _add_phases(table: Table, latency: Latency) -> None:
    named = (
        (f"encode {latency.new_tokens:,} new of each", latency.encode),
        ("score the candidates", latency.score),
    )
    for name, phase in named:
        times = (phase.compute_ms, phase.memory_ms, phase.exchange_ms, phase.total_ms)
        counts = f"{phase.tokens:,}", f"{phase.passes:,}", f"{phase.flops / 1e12:,.2f}"
        table.add_row(name, *counts, *(f"{ms:,.2f}" for ms in times))
    table.add_row("together", *[""] * 6, f"{latency.predicted_ms:,.2f}", end_section=True)


def _promise(plan: Plan) -> str:
    latency = plan.latency
    told = (
        f"predicted {latency.predicted_ms:,.1f} ms a batch, {latency.behind_a_batch_ms:,.1f} ms just behind another; "
        f"{latency.requests_per_s:,.1f} requests/s"
    )
    if plan.meets_sla is None:
        return plain(told)
    return plain(f"{told}. The SLA of {plan.sla_ms:g} ms is {'met' if plan.meets_sla else 'missed'}")


def _fleet(fleet: Fleet, cached: Fleet) -> Table:
    title = f"fleet for {fleet.rps:,.0f} requests/s at {fleet.utilisation:.0%} of capacity"
    table = Table("what", title=title, title_justify="left")
    table.add_column("as planned", justify="right")
    table.add_column("histories in pages", justify="right")
    for name, *figures in zip(("replicas", "devices"), _machines(fleet), _machines(cached), strict=True):
        table.add_row(name, *figures)
    table.add_section()
    for name, per_s in (
        ("network in", fleet.network_in_bytes_per_s),
        ("network out", fleet.network_out_bytes_per_s),
        ("log", fleet.log_bytes_per_s),
    ):
        table.add_row(name, f"{per_s / 1e6:,.1f} MB/s", f"{per_s / 1e6:,.1f} MB/s")
    return table


def _machines(fleet: Fleet) -> tuple[str, str]:
    return f"{fleet.replicas:,}", f"{fleet.devices:,}"
