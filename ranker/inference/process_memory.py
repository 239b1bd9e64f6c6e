"""What this process holds and touches, as the kernel and the collector count it."""

from __future__ import annotations

import gc
import resource
import sys
import threading
from pathlib import Path

import msgspec

from ranker.inference.host_memory import available_bytes

_STATM = Path("/proc/self/statm")
_PEAK_UNIT = 1 if sys.platform == "darwin" else 1024


class ProcessMemory(msgspec.Struct, frozen=True):
    """The process now, and since it started.

    Args:
        resident_bytes: in memory now; None where the kernel does not say.
        available_bytes: that the machine and the control group leave.
        minor_faults: pages that were given without reading a disk; major ones needed a read.
        gc_collections: of each generation, the youngest first.
        gc_pending: objects made since the last collection of each generation.
        gc_frozen: objects that collections skip.
    """

    resident_bytes: int | None
    peak_resident_bytes: int
    available_bytes: int
    minor_faults: int
    major_faults: int
    gc_collections: list[int]
    gc_pending: list[int]
    gc_frozen: int
    threads: int


def process_memory() -> ProcessMemory:
    """Reads it; some 50 µs."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessMemory(
        resident_bytes=resident_bytes(),
        peak_resident_bytes=usage.ru_maxrss * _PEAK_UNIT,
        available_bytes=available_bytes(),
        minor_faults=usage.ru_minflt,
        major_faults=usage.ru_majflt,
        gc_collections=[each["collections"] for each in gc.get_stats()],
        gc_pending=list(gc.get_count()),
        gc_frozen=gc.get_freeze_count(),
        threads=threading.active_count(),
    )


def resident_bytes() -> int | None:
    """Bytes in memory now."""
    try:
        return int(_STATM.read_text("ascii").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None
