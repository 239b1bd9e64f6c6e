"""`nextaction validate`: what is wrong with a log, and where."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from rich.table import Table

from ranker.terminal import Steps, plain, print_json, stdout

SHOWN_EXAMPLES = 3


def run(args: Namespace) -> int:
    """Fails when the log has errors; warnings are only named."""
    from training.validate import validate_log

    with Steps() as steps:
        report = validate_log(args.log, lambda done: steps("validate", done))
    found = report.to_json()
    if args.json:
        print_json(found)
    else:
        _show(str(args.log), found)
    return 0 if report.ok else 1


def _show(log: str, found: dict[str, Any]) -> None:
    console = stdout()
    counts = ", ".join(f"{count:,} {kind}" for kind, count in found["events"].items())
    console.print(plain(f"{log}: {counts or 'no event'}"))
    if found["findings"]:
        table = Table("severity", "kind", "count", "where")
        for kind, finding in found["findings"].items():
            examples = finding["examples"][:SHOWN_EXAMPLES]
            places = [f"{place['segment']}:{place['line']}: {place['detail']}" for place in examples]
            more = finding["count"] - len(places)
            places += [f"… and {more:,} more"] if more else []
            table.add_row(finding["severity"], plain(kind), f"{finding['count']:,}", plain_lines(places))
        console.print(table)
    console.print("no errors" if found["ok"] else "the log has errors")


def plain_lines(lines: list[str]) -> str:
    """Each line as it is, one below the other."""
    return "\n".join(map(plain, lines))
