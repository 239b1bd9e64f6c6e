"""`nextaction audit`: the texts drawn for people to judge, and what their labels say of the scorer."""

from __future__ import annotations

import hashlib
import math
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.table import Table

from ranker.commands.errors import CommandError
from ranker.figures import unusable_lines
from ranker.terminal import Steps, plain, print_json, stdout, warn

if TYPE_CHECKING:
    from training.audit import Sample

SHARES = {
    "served": "shown texts that are unsafe",
    "passed": "passed texts that are unsafe",
    "missed": "unsafe texts that pass",
    "withheld": "safe texts that are withheld",
}


def run(args: Namespace) -> int:
    """Fails where nothing was audited, or `--to` is there already."""
    from training.audit import judge_sample, read_sample
    from training.safety_labels import read_judged

    with Steps() as steps:
        steps("log")
        sample = read_sample(args.log, -math.inf if args.since is None else args.since)
    if not sample.drawn:
        raise CommandError(
            f"{args.log}: none of {sample.rankings:,} rankings has audited texts: "
            "set audit.probability in serve.yaml, and a scorer to audit"
        )
    labels = {} if args.labels is None else read_judged(args.labels)
    judged = None if args.labels is None else judge_sample(sample.drawn, labels, args.confidence)
    report = {**_counts(sample), "estimates": msgspec.to_builtins(judged), "confidence": args.confidence}
    lines = list(_lines(sample, labels, all_texts=args.labels is None))
    if args.to is not None:
        _write(args.to, lines)
    report |= {"file": None if args.to is None else str(args.to), "written": 0 if args.to is None else len(lines)}
    if args.json:
        print_json(report)
    else:
        _show(report)
    if args.to is not None and args.labels is not None and sample.uneven:
        warn("texts had different probabilities of being drawn, and calibrate-safety takes each line for one case")
    return 0


def _counts(sample: Sample) -> dict[str, Any]:
    texts = [each.text for each in sample.drawn]
    return {
        "rankings": sample.rankings,
        "audited": sample.audited,
        "forgotten": sample.forgotten,
        "repeated": sample.repeated,
        "texts": len(texts),
        "distinct": len({text.text for text in texts}),
        "served": sum(text.passed and text.served for text in texts),
        "withheld": sum(not text.passed for text in texts),
        "probabilities": {f"{p:g}": count for p, count in sorted(sample.probabilities.items())},
        "unusable_lines": dict(sample.problems.counts),
        "unusable_examples": [str(problem) for problem in sample.problems.examples],
    }


def _lines(sample: Sample, labels: dict[str, bool], *, all_texts: bool) -> Iterator[bytes]:
    """A line for each distinct text, with labels only of those that have one.

    The order is one of chance, the same for the same texts: whoever labels only the first has a fair part.
    """
    found: dict[str, dict[str, Any]] = {}
    for each in sample.drawn:
        text = each.text
        if all_texts or text.text in labels:
            line = {"text": text.text, "unsafe": labels.get(text.text), "score": text.score, "passed": text.passed}
            kept = found.setdefault(text.text, {**line, "drawn": 0, "weight": 0.0})
            kept["drawn"] += 1
            kept["weight"] += each.weight
    for line in sorted(found.values(), key=lambda line: hashlib.sha256(line["text"].encode()).digest()):
        yield msgspec.json.encode(line) + b"\n"


def _write(path: Path, lines: list[bytes]) -> None:
    """Never over a file that is there: somebody may have put hours of labels into it."""
    try:
        with path.open("xb") as out:
            out.writelines(lines)
    except FileExistsError as error:
        raise CommandError(f"{path} is there already; its labels would be lost") from error


def _show(report: dict[str, Any]) -> None:
    from training.audit import ALARM_AT

    console = stdout()
    console.print(
        plain(
            f"{report['audited']:,} of {report['rankings']:,} rankings were audited: {report['texts']:,} texts, "
            f"{report['distinct']:,} distinct, {report['served']:,} shown, {report['withheld']:,} withheld"
        )
    )
    if report["estimates"] is not None:
        console.print(_table(report["estimates"], report["confidence"]))
        found = report["estimates"]
        told = "ALARM: more unsafe texts pass than usual" if found["alarm"] >= ALARM_AT else "no alarm"
        console.print(plain(f"{told}: evidence {found['alarm']:.3g}, an alarm from {ALARM_AT:g} on"))
        console.print(plain(f"{found['unlabelled']:,} texts of the sample have no label"))
    if report["unusable_lines"]:
        for line in unusable_lines(report["unusable_lines"], report["unusable_examples"]):
            console.print(line)
    if report["file"] is not None:
        console.print(plain(f"{report['written']:,} texts written to {report['file']}"))


def _table(estimates: dict[str, Any], confidence: float) -> Table:
    table = Table("", "share", f"{100 * confidence:.4g} % interval", "in the sample", "in the log")
    for key, name in SHARES.items():
        of = estimates[key]
        if of["share"] is None:
            table.add_row(name, "—", "—", "none", "none")
            continue
        interval = f"{of['low']:.3%} … {of['high']:.3%}"
        log = f"{of['total']:,.0f} of {of['of_total']:,.0f}"
        table.add_row(name, f"{of['share']:.3%}", interval, f"{of['count']:,} of {of['of']:,}", log)
    return table
