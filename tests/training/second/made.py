"""A log in which only the order of what was done tells what comes next, and popularity tells nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from features.events import Event
from tests.training.logs import answered, catalogue, did, ranked, write_log

ACTIONS = "abcdef"
FOLLOWS = {name: ACTIONS[(place + 2) % len(ACTIONS)] for place, name in enumerate(ACTIONS)}


def events(users: int = 30, steps: int = 12, seed: int = 0) -> Iterator[Event]:
    """Each user does something two back in time decides: a request's useful action follows from the one before."""
    draw = np.random.default_rng(seed)
    yield from catalogue(ACTIONS)
    for step in range(steps):
        for number in range(users):
            user, at_s = f"u{number}", 100.0 * (step * users + number)
            told = ACTIONS[draw.integers(len(ACTIONS))]
            yield did(None, at_s, user, session=f"s{number}", type=f"saw_{told}", id=f"i{step}.{number}")
            yield did(None, at_s + 5, user, session=f"s{number}", type="waited", id=f"w{step}.{number}")
            name = f"r{step}.{number}"
            yield ranked(name, at_s + 10, ACTIONS, user, session=f"s{number}", context={"surface": "home"})
            yield answered(name, "accept", at_s + 12, FOLLOWS[told], user)
            yield answered(name, "complete", at_s + 14, FOLLOWS[told], user)


def sequence_log(folder: Path, users: int = 30, steps: int = 12) -> Path:
    """A log of them."""
    return write_log(folder / "log", list(events(users, steps)))
