"""What a command says to the person before it: figures on stdout, progress and remarks on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TextIO

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

WORTH_A_LINE_S = 1.0
"""A step that took less is not mentioned where there is no terminal."""


def stdout() -> Console:
    """Where figures go; a table keeps its width in a pipe."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Where progress and remarks go."""
    return _console(sys.stderr)


def print_json(value: Any) -> None:
    """One JSON document, alone on stdout."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    print(text, flush=True)


def warn(text: str) -> None:
    """A remark on stderr."""
    print(f"nextaction: warning: {text}", file=sys.stderr, flush=True)


def plain(text: object) -> str:
    """Text from outside, so that rich shows it as it is: no markup, no control characters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in str(text))
    return escape(shown)


class Steps:
    """Shows how far a command is: a bar per step on a terminal, a line per long step elsewhere.

    `steps("replay", 2000)` or `steps("trees", 10, 80)`; a new name ends the step before it.

    Args:
        console: on stderr by default.
        clock: seconds, monotonic.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or stderr()
        self._clock = clock
        self._bars = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(), console=self._console, transient=False, disable=not self._console.is_terminal,
        )  # fmt: skip
        self._task: TaskID | None = None
        self._what = ""
        self._started = 0.0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(finished=kind is None)
        self._bars.stop()

    def __call__(self, what: str, done: int = 0, of: int = 0, rate: bool = False) -> None:
        """A step has come so far.

        Args:
            of: 0 while the end is not known.
            rate: also show how many are done in a second.
        """
        if what != self._what:
            self.end()
            self._what, self._started = what, self._clock()
            self._task = self._bars.add_task(what, total=None, count="")
        assert self._task is not None
        count = f"{done:,}" + (f" of {of:,}" if of else "") if done or of else ""
        if rate and (taken_s := self._clock() - self._started) > 0.0:
            count += f", {done / taken_s:,.0f}/s"
        self._bars.update(self._task, completed=done, total=of or None, count=count)

    def say(self, line: str) -> None:
        """A line above the bars, about the step that is going on."""
        self._console.print(line, markup=False, highlight=False)

    def end(self, finished: bool = True) -> None:
        """Ends the step that is going on, if any."""
        if self._task is None:
            return
        taken_s = self._clock() - self._started
        if finished:
            self._bars.update(self._task, total=1, completed=1)
        self._bars.stop_task(self._task)
        if finished and not self._console.is_terminal and taken_s >= WORTH_A_LINE_S:
            self._console.print(f"{self._what}: {taken_s:.1f} s", markup=False, highlight=False)
        self._task, self._what = None, ""


def _console(file: TextIO) -> Console:
    # Without a terminal rich would wrap at 80 columns whatever reads it.
    return Console(file=file, width=None if file.isatty() else 120, highlight=False)
