"""Where a partition's lines lie: `LOGDIR/partition-0/<offset of the first line, 20 digits>.jsonl`.

The ordinal of a line in its partition is its offset. A blank line keeps its ordinal and means "removed
by compaction".
"""

from __future__ import annotations

import os
import re
from pathlib import Path

SEGMENT_BYTES = 64 << 20
"""A segment that would grow past this is followed by a new one."""

MAX_LINE_BYTES = 16 << 20
"""No line is longer: a reader never holds more than this of a file that is not a log."""

_SEGMENT_NAME = re.compile(r"(\d{20})\.jsonl")


def partition_folder(logdir: Path, partition: int = 0) -> Path:
    """The folder of a partition's segments."""
    return logdir / f"partition-{partition}"


def segment_path(folder: Path, first: int) -> Path:
    """The segment whose first line has the offset `first`."""
    return folder / f"{first:020d}.jsonl"


def list_segments(folder: Path) -> list[int]:
    """First offsets of all segments, ascending.

    Raises:
        OSError: the folder cannot be listed.
    """
    with os.scandir(folder) as entries:
        names = [_SEGMENT_NAME.fullmatch(entry.name) for entry in entries]
    return sorted(int(name[1]) for name in names if name)


def fsync_folder(folder: Path) -> None:
    """Makes the folder's entries durable, so that a new file is still there after a power loss."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
