"""The options of the second stage's benches."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ranker.commands.options.parsing import add_command, count, reports

LONGEST = 16_384


def add_second_benches(benches: Any) -> None:
    """Adds `nextaction bench second` and `nextaction bench soak`."""
    text = "The second stage by pages against recomputing: cost, bytes, throughput, and how many to pass on."
    second = add_command(benches, "second", text, "bench_second")
    lengths = "events of a history, several with commas, even (default 64,256,512,1024)"
    second.add_argument("--lengths", type=_lengths, default=(64, 256, 512, 1024), metavar="L,...", help=lengths)
    second.add_argument("--rounds", type=count, default=15, help="of each figure, in turns (default 15)")
    second.add_argument("--quick", action="store_true", help="about a minute: two lengths, few rounds")
    text = "instead: the whole service over HTTP at 256 and 1,024 events, pages and batches on and off: ten minutes"
    second.add_argument("--service", action="store_true", help=text)
    second.add_argument("--models", type=Path, metavar="DIR", help="judge its newest second stage too")
    second.add_argument("--log", type=Path, metavar="DIR", help="of events to judge it on")
    reports(second)
    text = "Page faults, allocations and resident memory of the second stage over requests with churn of users."
    soak = add_command(benches, "soak", text, "bench_soak")
    soak.add_argument("--requests", type=count, default=50_000, metavar="N", help="default %(default)s")
    soak.add_argument("--length", type=_length, default=256, help="events of each history (default %(default)s)")
    soak.add_argument("--kv", choices=("fp32", "bf16", "int8", "int4"), default="int8", help="default %(default)s")
    reports(soak)


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(sorted({_length(part) for part in text.split(",")}))


def _length(text: str) -> int:
    if not text.strip().isdecimal() or not 32 <= int(text) <= LONGEST or int(text) % 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not an even number from 32 to {LONGEST}")
    return int(text)
