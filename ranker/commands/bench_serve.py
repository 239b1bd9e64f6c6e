"""`nextaction bench serve`: the service beside an echo of the same server."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ranker.terminal import Steps, plain, print_json, stdout


def run(args: Namespace) -> int:
    """Measures, prints a table or JSON, and writes the plot where one is asked for."""
    from training.bench.plot import growth_svg
    from training.bench.serve import QUICK, Plan, bench_serve, machine

    plan = QUICK if args.quick else Plan()
    args.data.mkdir(parents=True, exist_ok=True)
    with Steps() as steps:
        if args.soak:
            report = {"soak": _soak(args, plan, steps), "machine": machine()}
        elif args.settings:
            report = {"settings": _settings(args, plan, steps), "machine": machine()}
        else:
            report = bench_serve(plan, args.data, steps)
    if args.json:
        print_json(report)
    else:
        show(stdout(), report)
    if args.plot is not None and "growth" in report:
        args.plot.write_text(growth_svg(report["growth"]), "utf-8")
    return 0


def _soak(args: Namespace, plan: Any, steps: Steps) -> Any:
    from training.bench.figures import plain as as_json
    from training.bench.material import prepare
    from training.bench.soak import bench_soak

    return as_json(bench_soak(prepare(args.data, plan.size, time.time()), args.soak, steps))


def _settings(args: Namespace, plan: Any, steps: Steps) -> Any:
    from training.bench.figures import plain as as_json
    from training.bench.material import prepare
    from training.bench.settings import bench_settings

    material = prepare(args.data, plan.size, time.time())
    return as_json(bench_settings(material, Path(args.data), plan.rounds, plan.closed_s, steps))


def show(console: Console, report: Mapping[str, Any]) -> None:
    """Tables for people."""
    if "cpu_us" in report:
        console.print(_table("CPU per request", ("", "µs", "times echo", "saturation /s"), _costs(report)))
        stages = [(stage, f"{us:,.0f}") for stage, us in report["stages_us"].items()]
        console.print(_table("a ranking's wall time by stage, at saturation", ("stage", "µs"), stages))
        console.print(_table("latency from the scheduled time", _LOADS, _loads(report)))
        over = report["overload"]
        console.print(plain(f"goodput at 2 × saturation, of the peak: {_of(over['goodput_of_peak'], '.1%')} by round"))
        rates = ", ".join(f"{_of(found, ',.0f')} at {share} ×" for share, found in over["goodput"].items())
        console.print(plain(f"goodput /s: {rates}; of the medians {over['median_of_medians']:.1%}"))
    if "growth" in report:
        console.print(_table("growth of CPU per ranking", ("with", "ms at n", "exponent"), _growth(report["growth"])))
    if "soak" in report:
        soak = report["soak"]
        told = ", ".join(f"{name} {soak[f'{name}_mib']:.1f} MiB" for name in ("start", "middle", "end"))
        console.print(plain(f"resident over {soak['requests']:,} requests of as many users: {told}"))
    for name, found in report.get("settings", {}).items():
        figures = f"CPU {_of(found['cpu_of_usual'], '.2f')}, p99 {_of(found['p99_of_usual'], '.2f')}"
        console.print(plain(f"{name}: {figures} of the usual"))
    console.print(plain(f"{report['machine']['cores']} cores, Python {report['machine']['python']}"))


_LOADS = ("load", "requests /s", "p50 ms", "p99 ms", "echo p50", "echo p99", "spread, times echo's")


def _costs(report: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for name, cpu in report["cpu_us"].items():
        times = report["times_echo"].get(name)
        yield name, _of(cpu, ",.0f"), _of(times, ".1f") if times else "", _of(report["saturation"][name], ",.0f")


def _loads(report: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for load in report["loads"]:
        rank, echo = load["rank"], load["echo"]
        figures = (rank["p50_ms"], rank["p99_ms"], echo["p50_ms"], echo["p99_ms"])
        shown = (_number(figure, ".2f") for figure in figures)
        yield f"{load['share']:.0%}", f"{rank['rate']:,.0f}", *shown, _of(load["spread_ratio"], ".1f")
    over = report["overload"]["overloaded"]
    refused = sum(count for status, count in over["statuses"].items() if status != "200")
    yield "200%", f"{over['rate']:,.0f}", f"{over['p50_ms']:.2f}", f"{over['p99_ms']:.2f}", "", "", f"{refused} refused"


def _growth(growths: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for name, found in growths.items():
        points = ", ".join(f"{ms:.2f} at {n:,}" for n, ms in found["points"])
        yield name, points, _number(found["exponent"], ".2f")


def _of(spread: Mapping[str, float], form: str) -> str:
    return f"{spread['median']:{form}} ({spread['least']:{form}} to {spread['most']:{form}})"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"


def _table(title: str, columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table
