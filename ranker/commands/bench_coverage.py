"""`nextaction bench coverage`: how often the intervals of off-policy estimates cover a truth that is known."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from ranker.terminal import Steps, plain, print_json, stdout


def run(args: Namespace) -> int:
    """Fails when an interval covers the truth more or less often than it should."""
    from training.off_policy.coverage import CoveragePlan, bench_coverage

    started_s = time.monotonic()
    with Steps() as steps:
        plan = CoveragePlan(runs=args.runs, seed=args.seed)
        report = bench_coverage(plan, lambda done, of: steps("runs", done, of))
    report["seconds"] = round(time.monotonic() - started_s, 3)
    if args.json:
        print_json(report)
    else:
        show(report)
    return 0 if report["ok"] else 1


def show(report: Mapping[str, Any]) -> None:
    """The report for people."""
    console = stdout()
    low, high = report["wanted"]
    console.print(f"{report['runs']:,} runs; intervals of 95 % should cover in {low:.0%} to {high:.0%}")
    for slots, found in report["slots"].items():
        table = Table("estimator", title=plain(f"lists of {slots}, truth {found['truth']:.4f}"), title_justify="left")
        for heading in ("shown", "bias", "error", "covered", "by bootstrap"):
            table.add_column(heading, justify="right")
        for name, figures in found["estimators"].items():
            errors = (_figure(figures["bias"], "+.4f"), _figure(figures["error"], ".4f"))
            shares = (_figure(figures["coverage"], ".1%"), _figure(figures["bootstrap_coverage"], ".1%"))
            table.add_row(plain(name), f"{figures['shown']:,}", *errors, *shares)
        console.print(table)
    console.print("all within" if report["ok"] else "not all within")


def _figure(value: float | None, form: str) -> str:
    return "—" if value is None else format(value, form)
