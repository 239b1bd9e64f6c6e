"""What an import costs as it grows: events per second and peak memory, each size in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.bench.figures import growth, plain
from training.bench.import_source import write_source
from training.errors import TrainingError

MIB = float(1 << 20)


@dataclass(frozen=True)
class ImportPlan:
    """What to measure.

    Args:
        events: sizes, in lines.
        folder: where sources and logs lie while they are needed; None takes the system's.
    """

    events: Sequence[int] = (100_000, 1_000_000)
    seed: int = 0
    folder: Path | None = None


def bench_import(plan: ImportPlan, progress: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Figures per size and the exponents of growth: of a time that grows linearly 1, of a memory that is flat 0.

    Raises:
        TrainingError: an import failed.
    """
    sizes = []
    for events in sorted(set(plan.events)):
        with tempfile.TemporaryDirectory(dir=plan.folder, prefix="nextaction-import-") as folder:
            source = Path(folder) / "source.jsonl"
            progress(f"write {events:,}")
            write_source(source, events, plan.seed)
            progress(f"import {events:,}")
            sizes.append(_measured(source, Path(folder) / "log", events))
    found: dict[str, Any] = plain({"sizes": sizes, **_growths(sizes)})
    return found


def _measured(source: Path, logdir: Path, events: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "training.bench.import_child", str(source), str(logdir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TrainingError(f"the import of {events} events failed: {done.stderr.strip()[-300:]}")
    told = json.loads(done.stdout)
    return {
        "events": told["imported"],
        "source_mib": source.stat().st_size / MIB,
        "seconds": told["seconds"],
        "cpu_s": told["cpu_s"],
        "events_per_s": told["imported"] / max(told["seconds"], 1e-9),
        "events_per_cpu_s": told["imported"] / max(told["cpu_s"], 1e-9),
        "start_mib": told["start_bytes"] / MIB,
        "peak_mib": told["peak_bytes"] / MIB,
    }


def _growths(sizes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def exponent(name: str) -> float:
        return growth([(size["events"], size[name]) for size in sizes]).exponent

    first, last = sizes[0], sizes[-1]
    more = last["events"] - first["events"]
    each = (last["peak_mib"] - first["peak_mib"]) * MIB / more if more else float("nan")
    return {
        "cpu_exponent": exponent("cpu_s"),
        "seconds_exponent": exponent("seconds"),
        "peak_exponent": exponent("peak_mib"),
        "bytes_per_event": each,
    }
