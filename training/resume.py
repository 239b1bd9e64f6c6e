"""Which part of a log a training learns from, and where its replay begins and leaves a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from features.events import Event, ForgetEvent
from features.label_config import OutcomeWindows
from features.log import read_log
from features.registry import FINGERPRINT
from training.replay import LOOKAHEAD_EVENTS, Replay
from training.replay_checkpoint import (
    Checkpoint,
    Head,
    encode_checkpoint,
    load_checkpoint,
    save_checkpoint,
    witness_of,
)

CARRIED_COUNTS = ("useful_rankings", "own_actions")
"""Of labels before a checkpoint: they say whether what users did by themselves must serve as labels."""

_MARK_EVENTS = 256
"""Between two notes of how late it had become in the log."""


@dataclass(frozen=True)
class Span:
    """What to learn from.

    Args:
        since_s: only queries at or after it are learned from, Unix seconds; state comes from all before it.
        checkpoint: a folder; the replay goes on from what lies there, where that is early enough, and leaves its own.
    """

    since_s: float | None = None
    checkpoint: Path | None = None


@dataclass
class Resumed:
    """A log read from where its replay begins.

    Args:
        begin: what the replay goes on from; None begins with the log.
        until_s: events at or after it are left out.
        newest_s: time of the latest event taken in.
    """

    logdir: Path
    span: Span
    until_s: float | None
    begin: Checkpoint | None = None
    newest_s: float = 0.0
    saved: bytes | None = field(default=None, repr=False)
    _latest: list[tuple[float, int]] = field(default_factory=list, repr=False)

    @classmethod
    def open(cls, logdir: Path, span: Span, until_s: float | None, windows: OutcomeWindows) -> Resumed:
        """Goes on from the checkpoint where decisions since `span.since_s` are met by that as from the start.

        Raises:
            CheckpointRefused: the checkpoint is broken, or of something else.
        """
        found = None if span.checkpoint is None else load_checkpoint(span.checkpoint, logdir, windows)
        if found is not None and (span.since_s is None or span.since_s < found.head.ready_s):
            found = None
        return cls(logdir, span, until_s, found)

    @property
    def start(self) -> int:
        """Offset of the first line read."""
        return 0 if self.begin is None else self.begin.head.offset

    @property
    def carried(self) -> Mapping[str, int]:
        """Counts of labels before the first line read."""
        return {} if self.begin is None else self.begin.head.counts

    def events(self) -> Iterator[tuple[int, Event]]:
        """Those before `until_s`, and whoever asked to be forgotten, whenever that was."""
        latest_s = 0.0 if self.begin is None else self.begin.head.ready_s
        for number, (offset, event) in enumerate(read_log(self.logdir, self.start)):
            if number % _MARK_EVENTS == 0:
                self._latest.append((latest_s, offset))
            latest_s = max(latest_s, event.time_s)
            within = self.until_s is None or event.time_s < self.until_s
            if within:
                self.newest_s = max(self.newest_s, event.time_s)
            if within or isinstance(event, ForgetEvent):
                yield offset, event

    def learns(self, time_s: float) -> bool:
        """Whether a query of this time is learned from."""
        return self.span.since_s is None or time_s >= self.span.since_s

    def watch(self, replay: Replay, windows: OutcomeWindows, counts: Counter[str]) -> None:
        """Has the replay's state kept from before the time since which outcomes may still be pending.

        A query that had no outcome yet can so be learned from next time; and it is far enough back that rankings whose
        features lagged behind the log are met as from the start.
        """
        ready_s = (self.newest_s if self.until_s is None else self.until_s) - windows.attribution_s
        offset = max((mark for latest_s, mark in self._latest if latest_s < ready_s), default=0) - LOOKAHEAD_EVENTS
        if self.span.checkpoint is None or offset <= self.start:
            return
        carried = {name: counts[name] for name in CARRIED_COUNTS}

        def keep() -> None:
            head = Head(offset, ready_s, FINGERPRINT, windows, witness_of(self.logdir, offset), carried)
            self.saved = encode_checkpoint(Checkpoint(head, replay.state, replay.rowset, replay.met_before(offset)))

        replay.stop_at(offset, keep)

    def save(self) -> None:
        """Writes the new checkpoint, where there is one.

        Raises:
            TrainingError: it cannot be written.
        """
        if self.saved is not None:
            assert self.span.checkpoint is not None
            save_checkpoint(self.span.checkpoint, self.saved)
