"""`nextaction bench curve`: whether more data is worth its price."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import Any

from rich.table import Table

from ranker.terminal import Steps, plain, print_json, stdout


def run(args: Namespace) -> int:
    """Simulates, learns from each size, and judges by the truth."""
    from training.bench.curve import CurvePlan, bench_curve, quick

    plan = quick(args.seed) if args.quick else CurvePlan(seed=args.seed)
    plan = replace(plan, worth=args.worth, users=args.users or plan.users)
    with Steps() as steps:
        report = bench_curve(plan, steps)
    if args.json:
        print_json(report)
    else:
        _show(report)
    return 0


def _show(report: dict[str, Any]) -> None:
    console = stdout()
    title = f"{report['metric']}; {report['judged_scenes']:,} scenes of {report['users']} people"
    table = Table("exploration", title=title, title_justify="left")
    for heading in ("days", "events", "queries", "CPU s", "true NDCG"):
        table.add_column(heading, justify="right")
    for cell in report["cells"]:
        counts = (f"{cell['days']}", f"{cell['events']:,}", f"{cell['queries']:,}", f"{cell['cpu_s']:.1f}")
        table.add_row(f"{cell['exploration']:.0%}", *counts, f"{cell['true_ndcg']:.4f}")
    console.print(table)
    for share, value in report["shown_while_logging"].items():
        console.print(plain(f"what people saw while logging, at {float(share):.0%} exploration: {value:.4f}"))
    for answer in report["answers"]:
        console.print(plain(answer))
