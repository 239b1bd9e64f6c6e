"""`nextaction bench import`: events per second and peak memory of an import as it grows."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from ranker.terminal import Steps, print_json, stdout


def run(args: Namespace) -> int:
    """Makes sources, imports each in a process of its own, and tells what that took."""
    from training.bench.importing import ImportPlan, bench_import

    with Steps() as steps:
        report = bench_import(ImportPlan(args.events, args.seed, args.folder), steps)
    if args.json:
        print_json(report)
    else:
        show(report)
    return 0


def show(report: Mapping[str, Any]) -> None:
    """The report for people."""
    table = Table("events", title="JSON lines into a log, one process", title_justify="left")
    for heading in ("source MiB", "s", "CPU s", "events/s", "events/CPU s", "peak MiB"):
        table.add_column(heading, justify="right")
    for size in report["sizes"]:
        rates = (f"{size['events_per_s']:,.0f}", f"{size['events_per_cpu_s']:,.0f}")
        took = (f"{size['seconds']:.1f}", f"{size['cpu_s']:.1f}")
        table.add_row(f"{size['events']:,}", f"{size['source_mib']:.0f}", *took, *rates, f"{size['peak_mib']:.1f}")
    console = stdout()
    console.print(table)
    if report["cpu_exponent"] is not None:
        console.print(
            f"growth: CPU n^{report['cpu_exponent']:.2f}, peak memory n^{report['peak_exponent']:.2f}, "
            f"{report['bytes_per_event']:.1f} bytes an event"
        )
