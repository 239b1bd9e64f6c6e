"""`nextaction bench second`: what pages and batches are worth, in one run, in turns, on one thread as it is served.

cost        one new event and 50 candidates: cached against the history recomputed once, and of the machine's best
pages       bytes of a user's history and error of logits, by format
service     (--service) the same over HTTP, with the light stage and all else
load        requests a second in time, with pages and batches on and off, and with memory for half of the users
passed_on   what passing on more candidates costs, and with a trained version what it brings
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from training.bench.second_cost import by_candidates, cost, pages
from training.bench.second_load import Load, throughput
from training.bench.second_service import ServiceLoad, service

PASSED_ON = (10, 20, 50, 100, 200)
LOADED = (256, 1024)
"""Lengths at which throughput is measured."""
FITTING, CAPPED = 1.5, 0.5
"""How many times the users' pages fit into memory."""

Report = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How long the bench takes."""

    lengths: tuple[int, ...] = (64, 256, 512, 1024)
    loaded: tuple[int, ...] = LOADED
    rounds: int = 15
    load: Load = field(default_factory=Load)


def quick(lengths: tuple[int, ...]) -> Size:
    """A minute's worth."""
    short = tuple(sorted(lengths)[:2])
    return Size(short, short[-1:], rounds=3, load=Load(rounds=1, requests=60, steps=4, users=8, alone=5))


def measure_service(lengths: tuple[int, ...], load: ServiceLoad, folder: Path, tell: Callable[[str], None]) -> Report:
    """Throughput of the whole service over HTTP, and at the shortest length with memory capped too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found: Report = {"service": [], "service_capped": []}
        for length in lengths:
            tell(f"{length} events, the whole service")
            found["service"].append(service(length, load, folder, tell))
        tell(f"{lengths[0]} events, the whole service with memory for half of the users")
        found["service_capped"].append(service(lengths[0], load, folder, tell, capped=True))
        return found
    finally:
        torch.set_num_threads(threads)


def measure(size: Size, folder: Path, tell: Callable[[str], None]) -> Report:
    """All figures; `tell` is told what is being measured.

    Args:
        folder: for versions of random weights.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found: Report = {"cost": [], "load": [], "capped": []}
        for length in size.lengths:
            tell(f"{length} events, cached and recomputed")
            found["cost"].append(cost(length, size.rounds, folder))
        length = size.loaded[0]
        tell(f"{length} events, formats")
        found["pages"] = pages(length, folder)
        for length in size.loaded:
            found["load"].append(throughput(length, size.load, folder, tell, fitting=FITTING))
        # a longer history takes more than the whole deadline to encode anew, with pages or without
        found["capped"].append(throughput(size.loaded[0], size.load, folder, tell, fitting=CAPPED))
        tell(f"{size.loaded[0]} events, by candidates passed on")
        found["passed_on"] = by_candidates(size.loaded[0], PASSED_ON, size.rounds, folder)
        return found
    finally:
        torch.set_num_threads(threads)
