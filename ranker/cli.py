"""`nextaction …`: the tree of commands, and what becomes of their errors.

Each command is a module of ranker.commands that is imported when it is called, so that `--help` needs
nothing but argparse.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path

from ranker.commands.dates import date_s
from ranker.commands.errors import CommandError

FORMATS = ("star", "sequences", "jsonl")
FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141

EXPECTED = {
    "features.errors": "FeatureError",
    "ranker.errors": "RankerError",
    "ranker.release.errors": "RegistryError",
    "ranker.safety_text": "TextScorerError",
    "training.errors": "TrainingError",
    "training.safety_labels": "LabelError",
}
"""Roots of the errors that are raised on purpose, by module: any other is a bug and keeps its traceback."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    args = parser().parse_args(argv)
    try:
        status = _run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _silenced()
    except Exception as error:
        if not isinstance(error, _expected()):
            raise
        print(f"nextaction: error: {_one_line(error)}", file=sys.stderr, flush=True)
        return FAILED
    return status


def _run(args: Namespace) -> int:
    status: int = import_module(f"ranker.commands.{args.module}").run(args)
    return status


def _expected() -> tuple[type[Exception], ...]:
    """What was raised was imported by its raiser: nothing is imported to find out."""
    known = [getattr(sys.modules[module], name) for module, name in EXPECTED.items() if module in sys.modules]
    return (CommandError, OSError, *known)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _silenced() -> int:
    """Whoever read us is gone: say nothing more, not even at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
    return BROKEN_PIPE


def parser() -> ArgumentParser:
    """The whole tree."""
    root = ArgumentParser("nextaction", description="Ranks the next actions an app should offer.")
    root.add_argument("--version", action="version", version=f"nextaction {_version()}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_demo, _serve, _import, _validate, _rebuild, _train, _evaluate, _models):
        add(commands)
    return root


def _version() -> str:
    try:
        return metadata.version("nextaction")
    except metadata.PackageNotFoundError:
        return "(not installed)"
