"""`nextaction …`: the tree of commands, and what becomes of their errors.

Each command is a module of ranker.commands that is imported when it is called, so that `--help` needs
nothing but argparse.
"""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module, metadata
from io import TextIOWrapper

from ranker.commands.errors import CommandError
from ranker.commands.options.bench import add_bench
from ranker.commands.options.judge import add_evaluate, add_models
from ranker.commands.options.labels import add_labels
from ranker.commands.options.logs import add_importing, add_rebuild, add_validate
from ranker.commands.options.plan import add_plan
from ranker.commands.options.release import add_gate, add_replay
from ranker.commands.options.safety import add_audit, add_calibrate_safety
from ranker.commands.options.service import add_demo, add_profile, add_serve
from ranker.commands.options.train import add_train

COMMANDS = (
    add_demo,
    add_serve,
    add_importing,
    add_validate,
    add_labels,
    add_rebuild,
    add_train,
    add_evaluate,
    add_gate,
    add_replay,
    add_calibrate_safety,
    add_audit,
    add_models,
    add_plan,
    add_profile,
    add_bench,
)
"""In the order of the help."""

FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141

EXPECTED = {
    "features.errors": "FeatureError",
    "ranker.errors": "RankerError",
    "ranker.inference.memory_errors": "PlannedMemoryError",
    "ranker.release.errors": "RegistryError",
    "ranker.safety_text": "TextScorerError",
    "training.errors": "TrainingError",
    "training.safety_labels": "LabelError",
}
"""Roots of the errors that are raised on purpose, by module: any other is a bug and keeps its traceback."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    _never_fail_to_print()
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


def _never_fail_to_print() -> None:
    """A terminal that has no `…` gets a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _silenced() -> int:
    """Whoever read us is gone: say nothing more, not even at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def parser() -> ArgumentParser:
    """The whole tree."""
    root = ArgumentParser("nextaction", description="Ranks the next actions an app should offer.")
    root.add_argument("--version", action="version", version=f"nextaction {_version()}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in COMMANDS:
        add(commands)
    return root


def _version() -> str:
    try:
        return metadata.version("nextaction")
    except metadata.PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
