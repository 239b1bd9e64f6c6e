"""The options of `nextaction bench import`."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from ranker.commands.options.parsing import add_command, reports

MIN_EVENTS, MAX_EVENTS = 100, 100_000_000


def add_bench_import(benches: Any) -> None:
    """Adds it to the benches."""
    text = "What an import costs as it grows: events per second and peak memory, each size in its own process."
    command = add_command(benches, "import", text, "bench_import")
    command.add_argument(
        "--events",
        type=sizes,
        default=(100_000, 1_000_000),
        metavar="N,N",
        help="sizes of the made-up source, in lines (default 100000,1000000)",
    )
    command.add_argument("--seed", type=int, default=0, help="of the source (default 0)")
    command.add_argument("--folder", type=Path, metavar="DIR", help="for sources and logs, a gigabyte per million")
    reports(command)


def sizes(text: str) -> tuple[int, ...]:
    """Numbers with commas between them."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and MIN_EVENTS <= int(part) <= MAX_EVENTS for part in parts):
        raise ArgumentTypeError(f"{text!r} is not a list like 100000,1000000 of numbers from 100 to 100000000")
    return tuple(map(int, parts))
