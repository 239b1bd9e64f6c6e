"""`nextaction gate`: may a version ship?"""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from rich.table import Table

from ranker.commands.errors import CommandError
from ranker.figures import counts_line, unusable_lines
from ranker.release.gating import PRIORS
from ranker.release.registry import Registry
from ranker.terminal import Steps, plain, print_json, stdout, warn

if TYPE_CHECKING:
    from training.gates.gate import GateReport

EXITS = {"ship": 0, "stop": 4, "hold": 5}


def run(args: Namespace) -> int:
    """0 ship, 4 stop, 5 hold; the verdict is kept in the registry."""
    from ranker.config import load_serve
    from ranker.propensity import Exploration
    from training.gates.gate import GateRequest, gate, record_of
    from training.gates.settings import load_gates

    if not args.models.is_dir():
        raise CommandError(f"{args.models} is not a folder, so it has no versions")
    registry, serve = Registry(args.models), load_serve(args.serve_config)
    request = GateRequest(
        registry,
        args.log,
        args.candidate,
        args.baseline or registry.active() or PRIORS,
        args.since,
        args.limit,
        args.safety_labelled,
        Exploration(serve.epsilon, serve.temperature),
        args.off_policy,
        load_gates(args.config),
    )
    started_s = time.monotonic()
    with Steps() as steps:
        report = gate(request, steps)
    registry.record_gate(record_of(registry, report, time.time()))
    found = {**report.to_json(), "active": registry.active(), "seconds": round(time.monotonic() - started_s, 3)}
    if args.json:
        print_json(found)
    else:
        _show(report, found)
    return EXITS[report.verdict]


def _show(report: GateReport, found: dict[str, Any]) -> None:
    console, judged = stdout(), report.judged
    for text in found.get("warnings", ()):
        warn(text)
    console.print(
        plain(
            f"version {report.candidate} against {report.baseline}: {judged.queries:,} queries of "
            f"{judged.rankings:,} decisions, {judged.since} to {judged.until}"
        )
    )
    console.print(findings_table(report))
    console.print(counts_line("excluded", found.get("excluded", {})))
    for line in unusable_lines(found.get("unusable_lines", {}), found.get("unusable_examples", [])):
        console.print(line)
    console.print(plain(f"{report.verdict}{_why(found['reasons'])}; {found['seconds']:.1f} s"))
    console.print(plain(_next(report, found["active"])))


def findings_table(report: GateReport) -> Table:
    """A row per rule."""
    table = Table("rule", "", "why", "figures")
    for finding in report.findings:
        table.add_row(*map(plain, (finding.rule, finding.verdict, finding.code, finding.detail)))
    return table


def _why(reasons: list[str]) -> str:
    return f": {', '.join(reasons)}" if reasons else ""


def _next(report: GateReport, active: str | None) -> str:
    """What can be done now."""
    activate = f"`nextaction models activate {report.candidate}`"
    if report.verdict != "ship":
        return f"{activate} will refuse it, unless with --override REASON, which is recorded"
    if report.baseline != (active or PRIORS):
        return f"what is active is {active or 'nothing'}: {activate} wants a gate against that"
    return f"{activate} makes it the active version"
