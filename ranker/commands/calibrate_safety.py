"""`nextaction calibrate-safety`: a threshold for the text scorer, with its evidence."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from features.events import format_time, from_seconds
from ranker.commands.errors import CommandError
from ranker.terminal import Steps, plain, print_json, stdout, warn

if TYPE_CHECKING:
    from ranker.safety_text import TextScorer
    from training.calibrate import Calibration
    from training.safety import Share
    from training.safety_cases import Cases
    from training.safety_record import CalibrationRecord

INFEASIBLE = 3
"""Exit status where the labelled texts cannot carry the limit."""


def run(args: Namespace) -> int:
    """0 where the limit can be held, or was allowed not to be; 3 where there are too few unsafe texts."""
    from training.calibrate import calibrate, said

    with Steps() as steps:
        steps("scores")
        scorer, cases = _scored(args)
    found = calibrate(cases.scores, cases.unsafe, args.limit, args.confidence)
    record = _record(args, cases, found)
    warnings = _warnings(args, scorer, cases)
    allowed = record.feasible or args.allow_infeasible
    path = _install(args.models, scorer, record) if scorer is not None and allowed and not args.dry_run else None
    report = _report(args, cases, found, record, scorer, path)
    if args.json:
        print_json({**report, "warnings": warnings, "note": said(found, args.method)})
    else:
        _show(found, report, said(found, args.method))
    for text in warnings:
        warn(text)
    if not allowed:
        warn(
            f"{said(found, args.method)}; nothing was written: label more, take a larger --limit, or --allow-infeasible"
        )
    return 0 if allowed else INFEASIBLE


def _scored(args: Namespace) -> tuple[TextScorer | None, Cases]:
    """The scorer of MODELS, None with --scores, and the scored cases."""
    from ranker.safety_text import load_text_scorer
    from training.safety import MODEL_FILE
    from training.safety_cases import carried_cases, scored_cases

    if args.scores is not None:
        return None, carried_cases(args.labelled, args.scores)
    path = args.models / MODEL_FILE
    if not path.exists():
        raise CommandError(f"{path}: there is no scorer to calibrate; `nextaction train safety` makes one")
    scorer = load_text_scorer(path)
    return scorer, scored_cases(args.labelled, scorer)


def _record(args: Namespace, cases: Cases, found: Calibration) -> CalibrationRecord:
    from training.safety_record import CalibrationRecord

    chosen = found.by(args.method)
    return CalibrationRecord(
        date=format_time(from_seconds(time.time())),
        labelled=args.labelled.name,
        labelled_sha256=cases.sha256,
        method=args.method,
        limit=args.limit,
        confidence=args.confidence,
        threshold=0.0 if chosen.value is None else chosen.value,
        feasible=chosen.feasible,
        unsafe=found.unsafe,
        safe=found.safe,
        missed=chosen.missed,
        withheld=chosen.withheld,
    )


def _warnings(args: Namespace, scorer: TextScorer | None, cases: Cases) -> list[str]:
    from training.safety_record import was_trained_on

    if scorer is None or not was_trained_on(args.models, scorer, cases.sha256):
        return []
    return [
        f"{args.labelled} is what the scorer learned from: its misses look fewer than they are; take held-out texts"
    ]


def _install(models: Path, scorer: TextScorer, record: CalibrationRecord) -> Path:
    from training.safety_record import install_threshold

    return install_threshold(models, scorer, record)


def _report(
    args: Namespace,
    cases: Cases,
    found: Calibration,
    record: CalibrationRecord,
    scorer: TextScorer | None,
    path: Path | None,
) -> dict[str, Any]:
    import msgspec

    from training.calibrate import METHODS, judge
    from training.safety_record import RECORD_FILE

    plainly = msgspec.to_builtins
    chosen = found.by(args.method)
    served = None
    if scorer is not None:
        missed, withheld = judge(cases.scores, cases.unsafe, scorer.threshold, args.confidence)
        served = {"threshold": scorer.threshold, "missed": plainly(missed), "withheld": plainly(withheld)}
    return {
        **plainly(record),
        "needed": chosen.needed,
        "repeated": cases.repeated,
        "conflicts": cases.conflicts,
        "methods": {method: plainly(found.by(method)) for method in METHODS},
        "needed_by_misses": found.needed_by_misses,
        "until_now": served,
        "file": None if path is None else str(path),
        "evidence": None if path is None else str(path.with_name(RECORD_FILE)),
    }


def _show(found: Calibration, report: dict[str, Any], note: str) -> None:
    from training.calibrate import METHODS

    console = stdout()
    table = Table("method", "threshold", "unsafe that pass", "safe that are withheld", "unsafe needed")
    for method in METHODS:
        of = found.by(method)
        value = "none: flag all" if of.value is None else f"{of.value:.4f}"
        table.add_row(method, value, _share(of.missed), _share(of.withheld), f"{of.needed:,}")
    console.print(table)
    needed = ", ".join(f"{misses}: {count:,}" for misses, count in enumerate(found.needed_by_misses))
    console.print(plain(f"unsafe texts that Learn-then-Test needs, by misses allowed: {needed}"))
    console.print(plain(f"{report['unsafe']:,} unsafe and {report['safe']:,} safe texts; {note}"))
    console.print(plain("nothing was written" if report["file"] is None else f"written to {report['file']}"))


def _share(share: Share) -> str:
    if share.share is None or share.upper is None:
        return "no cases"
    return f"{share.share:.2%} (at most {share.upper:.2%}), {share.count:,} of {share.of:,}"
