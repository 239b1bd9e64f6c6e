"""`nextaction bench core`: the inference engine against the floor, and the rules it must keep under overload."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ranker.commands.errors import CommandError
from ranker.terminal import plain, stdout

if TYPE_CHECKING:
    from training.bench.figures import Spread


def run(args: Namespace) -> int:
    """Measures; the targets are printed beside the figures, and judged by whoever reads them."""
    from training.bench.core import Size, measure
    from training.bench.figures import plain as plainly

    if not hasattr(os, "sched_getaffinity"):
        raise CommandError("bench core needs Linux")
    console = stdout()
    tell = (lambda _: None) if args.json else (lambda text: console.print(plain(f"  {text}")))
    size = Size(rounds=args.rounds, seconds=args.seconds)
    report = measure(size, tell)
    machine = {"cores": len(os.sched_getaffinity(0)), "load_1m": os.getloadavg()[0], "gpu": "not measured"}
    if args.json:
        print(msgspec.json.encode(plainly({**report, "machine": machine})).decode(), flush=True)
        return 0
    for line in table(report, machine):
        console.print(plain(line))
    return 0


def table(report: Mapping[str, Any], machine: Mapping[str, Any]) -> list[str]:
    """The figures as lines: median over the rounds, then (least to most)."""
    lines = [f"{machine['cores']} cores, load {machine['load_1m']:.1f}; GPU: {machine['gpu']}"]
    for row in report["latency"]:
        lines.append(f"{row['rate']:g} req/s, 1 ms model: added p50 / p99 in ms")
        for name, p50 in row["added_p50_ms"].items():
            lines.append(f"  {name:20} {_of(p50)} / {_of(row['added_p99_ms'][name])}")
        lines.append(f"  engine over floor with window 0: p50 {_of(row['p50_ratio'])} (at most 1.3)")
        lines.append(f"                                   p99 {_of(row['p99_ratio'])} (at most 1.5)")
    for row in report["overload"]:
        lines.append(f"{row['factor']:g} times overload, {row['offered']:g} req/s; at best {_of(row['best'], 0)}/s")
        lines.append(f"  answered in time, of the best    {_of(row['goodput_share'], 3)} (at least 0.95)")
        lines.append(f"  back to normal after ms          {_of(row['recovery_ms'], 0)} (at most 50)")
        lines.append(f"  late of the dispatched           {_of(row['late_share'], 4)} (at most 0.001)")
    row = report["premium"]
    lines.append(f"premium at 1.5 times, budget {row['budget_ms']:g} ms")
    lines.append(f"  normal in time, over its share   {_of(row['normal_over_its_share'])} (never 0)")
    lines.append(f"  normal, premium in time          {_of(row['normal_in_time'])}, {_of(row['premium_in_time'])}")
    lines.append(f"  longest wait of a normal one, ms {_of(row['normal_wait_max_ms'], 0)}")
    for name, executed in report["leaving"].items():
        lines.append(f"64 clients that left, computed by the {name}: {_of(executed, 0)} (at most 16)")
    for row in report["scheduler"]:
        least = " (at least 100,000)" if row["queued"] == 10_000 else ""
        lines.append(f"scheduler alone, {row['queued']} queued: {_of(row['per_s'], 0)} requests/s of a core{least}")
        lines.append(f"  time of one, over the first's    {_of(row['growth'])} (log n: {row['log_growth']:.2f})")
    return lines


def _of(found: Spread, digits: int = 2) -> str:
    return f"{found.median:.{digits}f} ({found.least:.{digits}f} to {found.most:.{digits}f})"
