"""`nextaction import`: foreign records become a new log."""

from __future__ import annotations

import time
from argparse import Namespace

from rich.table import Table

from ranker.terminal import Steps, plain, print_json, stdout


def run(args: Namespace) -> int:
    """Imports; what was passed over is reported and no failure."""
    from training.importers import import_log

    started_s = time.monotonic()
    with Steps() as steps:
        report = import_log(args.format, args.source, args.to, lambda done: steps("import", done, rate=True))
    seconds = time.monotonic() - started_s
    rate = round(report.total / seconds, 1) if seconds > 0.0 else None
    found = {"log": str(args.to), **report.to_json(), "seconds": round(seconds, 3), "events_per_s": rate}
    if args.json:
        print_json(found)
        return 0
    table = Table(title=plain(f"{args.source} → {args.to}"), title_justify="left")
    table.add_column("event")
    table.add_column("number", justify="right")
    for kind, count in {**found["events"], "total": found["total"]}.items():
        table.add_row(plain(kind), f"{count:,}")
    stdout().print(table)
    if rate is not None:
        stdout().print(f"{rate:,.0f} events/s")
    for name, counts in (("skipped", found["skipped"]), ("noted", found["notes"])):
        for reason, count in counts.items():
            stdout().print(plain(f"{name}: {count:,} {reason}"))
    if found["duplicates"]:
        stdout().print(f"skipped: {found['duplicates']:,} duplicates")
    for example in found["examples"][:5]:
        stdout().print(plain(f"  {example['file']}:{example['line']}: {example['reason']}: {example['detail']}"))
    return 0
