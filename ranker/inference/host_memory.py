"""How much memory this process may still take, so that a plan fails at start and not by the kernel's hand."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_GROUP_USED = Path("/sys/fs/cgroup/memory.current")


def available_bytes() -> int:
    """What the machine and the control group leave, whichever is less."""
    return min(_machine(), _group())


def _machine() -> int:
    try:
        for line in _MEMINFO.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group() -> int:
    try:
        return max(0, int(_GROUP_LIMIT.read_text("ascii")) - int(_GROUP_USED.read_text("ascii")))
    except (OSError, ValueError):  # no control group, or its limit is "max"
        return 2**63 - 1
