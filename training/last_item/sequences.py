"""Each user's interactions with an action, in the order of (time, offset), from the canonical log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from features.events import Event, ForgetEvent, InteractionEvent
from features.log import Problems, read_log
from training.identity import identity

Codes = NDArray[np.int32]
Places = NDArray[np.int64]
Times = NDArray[np.float64]

UNKNOWN = 0
"""The code of an item that is not in the vocabulary; known items count from 1."""

_PROGRESS_EVERY = 20_000


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths in flat arrays.

    Args:
        starts: [rows + 1]; row r is at starts[r] … starts[r + 1].
        codes: [events], items.
        times_s: [events], Unix seconds.
    """

    starts: Places
    codes: Codes
    times_s: Times

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Places:
        """Events of each row, [rows]."""
        return np.diff(self.starts)

    def take(self, rows: Places, first: Places, stop: Places) -> Ragged:
        """Slices first[i] … stop[i] (from the row's own start) of rows[i]; copies.

        Args:
            rows, first, stop: [taken].
        """
        lengths = np.maximum(stop - first, 0)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        origin = np.repeat(self.starts[rows] + first - starts[:-1], lengths)
        where = origin + np.arange(starts[-1])
        return Ragged(starts, self.codes[where], self.times_s[where])

    def rows(self) -> Iterator[Codes]:
        """The items of each row."""
        for row in range(len(self)):
            yield self.codes[self.starts[row] : self.starts[row + 1]]


@dataclass(frozen=True)
class Sequences:
    """All users' items in order; codes are places in `items`.

    Args:
        users: [users], in order of first appearance in the log.
        items: names, in order of first appearance.
        counts: events read, and what was passed over and why.
        last_offset: of the last event read; -1 for an empty log.
    """

    users: tuple[str, ...]
    items: tuple[str, ...]
    rows: Ragged
    counts: Mapping[str, int] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)
    last_offset: int = -1


def read_sequences(logdir: Path, progress: Callable[[int], None] | None = None) -> Sequences:
    """The sequences of a log: an id counts once, and what came before a user's wish to be forgotten is gone.

    Raises:
        LogError: there is no log in `logdir`, or it cannot be read.
    """
    reader = _Reader()
    problems = Problems()
    for offset, event in read_log(logdir, problems=problems):
        reader.take(offset, event)
        if progress is not None and offset % _PROGRESS_EVERY == 0:
            progress(offset)
    return reader.sequences(problems)


def from_lists(rows: Mapping[str, Sequence[str]], step_s: float = 60.0) -> Sequences:
    """Sequences of lists of items by user, a fixed time apart."""
    reader = _Reader()
    time_s = 0.0
    for user, items in rows.items():
        for item in items:
            reader.add(user, item, time_s, int(time_s / step_s))
            time_s += step_s
    return reader.sequences(Problems())


class _Reader:
    def __init__(self) -> None:
        self._of_user: dict[str, list[tuple[float, int, int]]] = {}
        self._items: dict[str, int] = {}
        self._seen: set[bytes] = set()
        self._counts: Counter[str] = Counter()
        self._last = -1

    def take(self, offset: int, event: Event) -> None:
        self._last = offset
        self._counts["events"] += 1
        key = identity(event)
        if key in self._seen:
            self._counts["duplicate"] += 1
            return
        self._seen.add(key)
        if isinstance(event, ForgetEvent):
            self._counts["forgotten_interactions"] += len(self._of_user.pop(event.user, ()))
        elif isinstance(event, InteractionEvent):
            if event.action is None:
                self._counts["interaction_without_action"] += 1
            else:
                self.add(event.user, event.action, event.time_s, offset)

    def add(self, user: str, item: str, time_s: float, offset: int) -> None:
        code = self._items.setdefault(item, len(self._items))
        self._of_user.setdefault(user, []).append((time_s, offset, code))

    def sequences(self, problems: Problems) -> Sequences:
        ordered = [sorted(events) for events in self._of_user.values()]
        flat = [event for events in ordered for event in events]
        starts = np.concatenate([[0], np.cumsum([len(events) for events in ordered])]).astype(np.int64)
        codes = np.array([code for _, _, code in flat], np.int32)
        times_s = np.array([time_s for time_s, _, _ in flat], np.float64)
        self._counts["interactions"] = len(flat)
        rows = Ragged(starts, codes, times_s)
        return Sequences(tuple(self._of_user), tuple(self._items), rows, dict(self._counts), problems, self._last)
