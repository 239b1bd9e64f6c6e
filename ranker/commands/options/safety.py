"""The options of what calibrates the text scorer and audits what it lets pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranker.commands.options.parsing import add_command, date, reports, share


def add_calibrate_safety(commands: Any) -> None:
    """Adds `nextaction calibrate-safety`."""
    text = (
        "Set the text scorer's threshold so that few unsafe texts pass, and say what that costs in good ones. Both "
        "methods are shown: Learn-then-Test, which holds the limit with a confidence, and conformal risk control, "
        "which holds it in expectation. The threshold goes into MODELS with its evidence, and is served from the next "
        "start on. Exit status 3 where there are too few unsafe texts for the limit."
    )
    command = add_command(commands, "calibrate-safety", text, "calibrate_safety")
    command.add_argument(
        "--labelled", type=Path, required=True, metavar="FILE",
        help='{"text": …, "unsafe": …} a line, of texts that the scorer did not learn from',
    )  # fmt: skip
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--models", type=Path, metavar="MODELS", help="whose scorer gets the threshold")
    source.add_argument(
        "--scores", metavar="FIELD", help="lines carry a score, the higher the likelier unsafe; nothing is written"
    )
    command.add_argument(
        "--limit", type=share, default=0.005, metavar="SHARE", help="of unsafe texts that may pass (default 0.005)"
    )
    command.add_argument(
        "--confidence", type=share, default=0.95, metavar="SHARE",
        help="with which it is held, and of all bounds (default 0.95)",
    )  # fmt: skip
    command.add_argument("--method", choices=("ltt", "conformal"), default="ltt", help="whose threshold is served")
    command.add_argument(
        "--allow-infeasible", action="store_true", help="with too few unsafe texts, install threshold 0: flag all"
    )
    command.add_argument("--dry-run", action="store_true", help="write nothing into MODELS")
    reports(command)


def add_audit(commands: Any) -> None:
    """Adds `nextaction audit`."""
    text = (
        "The texts of a log that were drawn for people to judge (`audit` in serve.yaml), and, once they are labelled, "
        "how many unsafe ones passed: each weighs one over the probability that it was drawn with."
    )
    command = add_command(commands, "audit", text, "audit")
    command.add_argument("--log", type=Path, required=True, metavar="LOGDIR")
    date(command, "--since", "audit what was ranked from DATE on")
    command.add_argument(
        "--labels",
        type=Path,
        metavar="FILE",
        help='{"text": …, "unsafe": true|false|null} a line; null: not judged yet',
    )
    command.add_argument(
        "--to", type=Path, metavar="FILE",
        help="a new file: the distinct texts to label, or with --labels the labelled ones for calibrate-safety",
    )  # fmt: skip
    command.add_argument("--confidence", type=share, default=0.95, metavar="SHARE", help="of intervals (default 0.95)")
    reports(command)
