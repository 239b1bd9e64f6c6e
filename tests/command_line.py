"""Runs `nextaction` commands in a test: in this process, or in one of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from features.events import ActionEvent, Context, Event, FeedbackEvent, RankedItem, RankingEvent, from_seconds
from ranker.cli import main

ROOT = Path(__file__).parents[1]
START_S = 1_590_000_000.0
"""2020-05-20T18:40:00Z."""
ACTIONS = ("greet", "ask_day", "ask_name", "book", "cancel", "say_bye")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Nextaction:
    """Calls the command line in this process."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *argv: object) -> Done:
        self.capsys.readouterr()
        try:
            status = main([str(word) for word in argv])
        except SystemExit as ended:
            assert isinstance(ended.code, int)
            status = ended.code
        out, err = self.capsys.readouterr()
        return Done(status, out, err)


@contextmanager
def process(*argv: object, folder: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A command of its own; it does not outlive the test.

    Args:
        folder: for its temporary files.
    """
    environment = {**os.environ, **({} if folder is None else {"TMPDIR": str(folder)})}
    started = subprocess.Popen(
        [sys.executable, "-m", "ranker.cli", *map(str, argv)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment,
    )
    with started:
        try:
            yield started
        finally:
            if started.poll() is None:
                started.kill()


def picks(count: int, *, hint: bool) -> Sequence[Event]:
    """A log of people who pick what the trigger asks for; `hint` has them type it."""
    start = from_seconds(START_S)
    events: list[Event] = [
        ActionEvent(id=f"a-{action}", time=start, action=action, fields={"title": action}) for action in ACTIONS
    ]
    for number in range(count):
        wanted = ACTIONS[number * 7 % len(ACTIONS)]
        at_s = START_S + 600.0 * (number + 1)
        fields = {"step": f"before_{wanted}", **({"_hint": f"please {wanted}"} if hint else {})}
        ranking = RankingEvent(
            id=f"r{number}",
            time=from_seconds(at_s),
            user=f"u{number % 9}",
            session=f"s{number // 4}",
            context=Context(surface="chat", fields=fields),
            items=[
                RankedItem(action=action, position=place, propensity=1.0) for place, action in enumerate(ACTIONS, 1)
            ],
        )
        accept = FeedbackEvent(
            id=f"f{number}",
            time=from_seconds(at_s + 5.0),
            ranking=ranking.id,
            user=ranking.user,
            type="accept",
            action=wanted,
        )
        events += [ranking, accept]
    return events
