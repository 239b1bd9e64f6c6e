"""The import that `nextaction bench import` measures, in a process of its own: `… SRC LOGDIR`, figures on stdout."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from training.importers import import_log


def main(source: Path, logdir: Path) -> None:
    """Imports and prints what it took, as one JSON object."""
    before = peak_bytes()
    wall_s, cpu_s = time.monotonic(), time.process_time()
    report = import_log("jsonl", source, logdir)
    took = {"seconds": time.monotonic() - wall_s, "cpu_s": time.process_time() - cpu_s}
    print(json.dumps({"imported": report.total, **took, "start_bytes": before, "peak_bytes": peak_bytes()}))


def peak_bytes() -> int:
    """Most memory that was ever resident; from /proc where there is one, for ru_maxrss counts the parent's too."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
