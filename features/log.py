"""The canonical log: durable append by one writer, ordered reading by anybody.

The segment files are the only truth; everything else can be rebuilt from them. Offsets are the order in
which state changes, an event's own time is what features measure.
"""

from __future__ import annotations

from features.log_cursor import Problem, Problems, RawLine
from features.log_lock import held_partition
from features.log_reader import LogTail, decode_line, last_lines, read_lines, read_log
from features.log_segments import MAX_LINE_BYTES, SEGMENT_BYTES, partition_folder
from features.log_writer import FileCalls, LogWriter
from features.recent_lines import RecentLines, Written

__all__ = [
    "MAX_LINE_BYTES",
    "SEGMENT_BYTES",
    "FileCalls",
    "LogTail",
    "LogWriter",
    "Problem",
    "Problems",
    "RawLine",
    "RecentLines",
    "Written",
    "decode_line",
    "held_partition",
    "last_lines",
    "partition_folder",
    "read_lines",
    "read_log",
]
