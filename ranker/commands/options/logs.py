"""The options of what makes, checks and applies logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranker.commands.options.parsing import add_command, reports

FORMATS = ("star", "sequences", "jsonl", "open-bandit")


def add_importing(commands: Any) -> None:
    """Adds `nextaction import`."""
    importing = add_command(commands, "import", "Turn foreign records into a new log.", "importing")
    importing.add_argument("--format", choices=FORMATS, required=True, help="what SRC is")
    importing.add_argument(
        "source",
        type=Path,
        metavar="SRC",
        help="a file, plain or gzip; jsonl takes a folder too, open-bandit one campaign's",
    )
    importing.add_argument("--to", type=Path, required=True, metavar="LOGDIR", help="must not exist, or be empty")
    reports(importing)


def add_validate(commands: Any) -> None:
    """Adds `nextaction validate`."""
    validate = add_command(
        commands, "validate", "Count and name what is wrong with a log; fails if there are errors.", "validate"
    )
    validate.add_argument("log", type=Path, metavar="LOGDIR")
    reports(validate)


def add_rebuild(commands: Any) -> None:
    """Adds `nextaction rebuild`."""
    text = (
        "Fill a store's online state from a log. Without --store the state goes into an embedded store that ends "
        "with this command: a check that the log can be rebuilt. (A service rebuilds its own embedded store.)"
    )
    rebuild = add_command(commands, "rebuild", text, "rebuild")
    rebuild.add_argument("--log", type=Path, required=True, metavar="LOGDIR")
    rebuild.add_argument("--store", metavar="URL", help="redis://, rediss:// or unix://")
    rebuild.add_argument("--config", type=Path, metavar="FILE", help="as configs/serve.yaml: what counts as an outcome")
    reports(rebuild)
