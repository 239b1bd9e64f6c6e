"""`nextaction bench position`: learning from lists that are looked at from the top."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import Any

from rich.table import Table

from ranker.terminal import Steps, plain, print_json, stdout


def run(args: Namespace) -> int:
    """Simulates, learns in each way, and judges by the truth."""
    from training.bench.position import PositionPlan, bench_position, quick
    from training.simulated.position_based import PositionWorld

    plan = PositionPlan(world=PositionWorld(slates=args.slates, shuffled=args.shuffled), seed=args.seed)
    if args.quick:
        plan = quick(replace(plan, seed=args.seed))
    with Steps() as steps:
        report = bench_position(plan, steps)
    if args.json:
        print_json(report)
    else:
        _show(report)
    return 0


def _show(report: dict[str, Any]) -> None:
    console = stdout()
    title = f"{report['slates']:,} lists, {report['shuffled_share']:.0%} shuffled; judged on {report['judged']:,}"
    table = Table("way", title=title, title_justify="left")
    for heading in ("true NDCG", "of the oracle", "minus the oracle, 95 %", "CPU s"):
        table.add_column(heading, justify="right")
    for name, of in report["ways"].items():
        gap = of["minus_oracle"]
        limits = f"{gap['low']:+.4f} to {gap['high']:+.4f}"
        table.add_row(plain(name), f"{of['true_ndcg']:.4f}", f"{of['of_oracle']:.4f}", limits, f"{of['cpu_s']:.1f}")
    console.print(table)
    for rate in report["theta"]:
        line = f"θ{rate['position']}/θ1 {rate['ratio']:.3f} ± {rate['error']:.3f}, true {rate['true']:.3f}"
        console.print(plain(line))
    if report["theta_unknown"]:
        console.print(plain(report["theta_unknown"]))
