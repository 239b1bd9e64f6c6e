"""The options of `nextaction train second`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranker.commands.options.last_item import add_train_protocol
from ranker.commands.options.parsing import activates, add_command, date, reports

PARTS = ("text", "time", "feedback")


def add_second(jobs: Any) -> None:
    """Adds `nextaction train second`."""
    text = (
        "Learn a second stage over a version's light stage, and publish both as a new version. A run that was ended is "
        "taken up where it was. With --protocol last-item: from plain sequences, each user's last item "
        "held back, as public tables are made; such a version is judged by `nextaction evaluate` and never serves."
    )
    second = add_command(jobs, "second", text)
    second.add_argument("--log", type=Path, required=True, metavar="LOGDIR")
    second.add_argument("--models", type=Path, required=True, metavar="MODELS")
    date(second, "--until", "learn from what happened before DATE only; default: where the light stage's data ends")
    second.add_argument("--over", metavar="V", help="version whose light stage it is; default: the newest with one")
    second.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 … (default auto)")
    second.add_argument("--no-hint", action="store_false", dest="hint", help="never ask with what users typed")
    second.add_argument(
        "--ablate", action="append", choices=PARTS, default=[], metavar="PART",
        help="leave out text, time or feedback, to see what it is worth; such a version is judged and never serves",
    )  # fmt: skip
    activates(second)
    second.add_argument("--anew", action="store_true", help="do not take up a run that was ended")
    second.add_argument("--config", type=Path, metavar="FILE", help="as configs/second.yaml, or last_item.yaml")
    add_train_protocol(second)
    reports(second)
