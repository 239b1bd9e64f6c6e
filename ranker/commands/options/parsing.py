"""What every command of the tree is made with: its entry, and the types of its options."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from ranker.commands.dates import date_s


def add_command(commands: Any, name: str, text: str, module: str | None = None) -> ArgumentParser:
    """A command with its help; `module` is the one in `ranker.commands` that runs it."""
    added: ArgumentParser = commands.add_parser(name, help=text.split(". ")[0].rstrip("."), description=text)
    if module is not None:
        added.set_defaults(module=module)
    return added


def reports(command: ArgumentParser, text: str = "print the report as JSON, alone on stdout") -> None:
    """The option `--json`."""
    command.add_argument("--json", action="store_true", help=text)


def activates(command: ArgumentParser) -> None:
    """The options `--activate` and `--override`, of what makes versions."""
    command.add_argument("--activate", action="store_true", help="make it the active version if the gate lets it ship")
    overrides(command)


def overrides(command: ArgumentParser) -> None:
    """The option `--override`."""
    command.add_argument(
        "--override", metavar="REASON", help="make it the active version without a passing gate; who, when and why "
        "are recorded",
    )  # fmt: skip


def date(command: ArgumentParser, name: str, text: str) -> None:
    """An option that takes a date."""
    text += "; 2020-05-24, or ISO 8601, UTC where it names no zone"
    command.add_argument(name, type=date_s, metavar="DATE", help=text)


def count(text: str) -> int:
    """A whole number from 1 to a million."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= 1_000_000):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000000")
    return int(text)


def share(text: str) -> float:
    """A share between 0 and 1."""
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share < 1.0:
        raise ArgumentTypeError(f"{text!r} is not a share between 0 and 1")
    return share
