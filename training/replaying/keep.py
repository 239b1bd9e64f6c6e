"""Keeps answers in a log of their own, never in the one that is played."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from features.events import encode_event
from features.log import LogWriter
from training.replaying.errors import ReplayError
from training.replaying.played import Played

_BATCH = 500


def check_target(source: Path, target: Path) -> None:
    """A folder that is empty or not there yet, outside of the log that is played.

    Raises:
        ReplayError: it is not.
    """
    here, there = source.resolve(), target.resolve()
    if there == here or here in there.parents or there in here.parents:
        raise ReplayError(f"{target} is the log that is played, or in it, or around it: answers go elsewhere")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ReplayError(f"{target} is not an empty folder")


def keep(answers: Iterable[Played], target: Path | None) -> int:
    """Writes what was answered, or only plays it where there is no target; gives how many were written.

    Raises:
        LogError: it cannot be written.
    """
    if target is None:
        for _ in answers:
            pass
        return 0
    lines = (encode_event(played.as_event()) for played in answers if not played.error)
    with LogWriter.open(target) as writer:
        while batch := list(islice(lines, _BATCH)):
            writer.append(batch)
        return writer.end
