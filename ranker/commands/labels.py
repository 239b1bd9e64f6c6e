"""`nextaction labels`: what a log's offers were worth, and what its accepts were."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from rich.table import Table

from ranker.config import load_train
from ranker.figures import counts_line, unusable_lines
from ranker.terminal import Steps, plain, print_json, stdout

SHOWN_SLICES = 24


def run(args: Namespace) -> int:
    """Fails when the log has no ranking."""
    from training.label_report import report_labels

    config = load_train(args.config)
    with Steps() as steps:
        report = report_labels(args.log, config.labels, config.outcomes, lambda done: steps("labels", done))
    found = report.to_json()
    if args.json:
        print_json(found)
    else:
        _show(found)
    return 0


def _show(found: dict[str, Any]) -> None:
    console = stdout()
    console.print(counts_line("counts", found["counts"]))
    console.print(plain(f"accidental: {_percent(found['accidental_share'])} of accepts"))
    console.print(counts_line("offers by gain", found["gains"]))
    table = Table("slice", title="the largest; ~ has few accepts", title_justify="left")
    for heading in ("rankings", "accepts", "accidental", "completions", "dismissals"):
        table.add_column(heading, justify="right")
    slices = found["slices"]
    largest = sorted(slices, key=lambda name: (-slices[name]["rankings"], name))[:SHOWN_SLICES]
    for name in sorted(largest):
        of = slices[name]
        share = f"{'~' if of['thin'] else ''}{_percent(of['accidental_share'])}"
        counts = (f"{of[key]:,}" for key in ("completions", "dismissals"))
        table.add_row(plain(name), f"{of['rankings']:,}", f"{of['accepts']:,}", share, *counts)
    console.print(table)
    for line in unusable_lines(found["unusable_lines"], found["unusable_examples"]):
        console.print(line)


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.1%}"
