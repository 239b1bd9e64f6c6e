"""The options of what looks at a log's labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranker.commands.options.parsing import add_command, reports


def add_labels(commands: Any) -> None:
    """Adds `nextaction labels`."""
    text = (
        "What followed the offers of a log: accepts and which share of them were accidents, completions, reuse, "
        "dismissals, late and orphan feedback, and what that makes each offer worth; by slice."
    )
    labels = add_command(commands, "labels", text, "labels")
    labels.add_argument("--log", type=Path, required=True, metavar="LOGDIR")
    labels.add_argument("--config", type=Path, metavar="FILE", help="windows and gains, as configs/train.yaml")
    reports(labels)
