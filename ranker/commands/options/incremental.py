"""The options of a training that goes on from a version."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from ranker.commands.dates import date_s

LAST = "last"


def add_incremental(light: ArgumentParser) -> None:
    """Adds `--since`, `--from` and `--checkpoint`."""
    group = light.add_argument_group("freshness")
    group.add_argument(
        "--since",
        type=since,
        metavar="DATE|last",
        help="learn from queries at or after DATE only (2020-05-24, or ISO 8601); features still come from all before "
        "them. last: where the data of the version ended that is gone on from, by default the newest",
    )
    group.add_argument(
        "--from",
        dest="parent",
        metavar="VERSION|latest",
        help="go on from a version: its text models learn on and some trees are added, by default since its data ended",
    )
    group.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="keep the replay's state there, about a day before the end, and go on from what lies there: so a run "
        "reads new events only. One of another log, schema or config is refused",
    )


def since(text: str) -> float | str:
    """Unix seconds, or LAST."""
    return LAST if text == LAST else date_s(text)
