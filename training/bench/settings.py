"""What each setting of a clean process is worth: services with one of them turned off, beside the usual one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from ctypes.util import find_library
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.bench.figures import latencies, ratio, spread
from training.bench.material import Material
from training.bench.server import Server, bench_server

USUAL = "as it is"


@dataclass(frozen=True)
class Variant:
    """Another way to start the service.

    Args:
        config: of `configs/serve.yaml`, what differs.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)


VARIANTS: Mapping[str, Variant] = {
    USUAL: Variant(),
    "collection of garbage as Python has it": Variant(config={"freeze_gc": "false"}),
    "two threads for numpy and LightGBM": Variant({"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}),
    "one arena, memory kept (glibc)": Variant(
        {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "268435456", "MALLOC_MMAP_THRESHOLD_": "268435456"}
    ),
}


def bench_settings(
    material: Material, folder: Path, rounds: int, seconds: float, progress: Callable[[str], None]
) -> dict[str, Any]:
    """CPU per ranking and p99 at half of the saturation, by variant, over those of the usual one in the same round."""
    with contextlib.ExitStack() as stack:
        variants = {**VARIANTS, **_other_allocator()}
        servers = {name: stack.enter_context(_started(material, folder, each)) for name, each in variants.items()}
        bodies = {name: server.write(material.bodies(50)) for name, server in servers.items()}
        for name, server in servers.items():
            server.load(bodies[name], seconds=60.0, count=300)
        cpu: dict[str, list[float]] = {name: [] for name in servers}
        p99: dict[str, list[float]] = {name: [] for name in servers}
        for turn in range(rounds):
            for name, server in servers.items():
                progress(f"{name}, round {turn + 1} of {rounds}")
                cpu_us, rate = _closed(server, bodies[name], seconds)
                cpu[name].append(cpu_us)
                report = server.load(bodies[name], seconds=seconds, rate=rate / 2.0, seed=turn + 1)
                p99[name].append(latencies(report, rate / 2.0, seconds, 100.0).p99_ms)
    return {
        name: {
            "cpu_us": spread(cpu[name]),
            "cpu_of_usual": ratio(cpu[name], cpu[USUAL]),
            "p99_of_usual": ratio(p99[name], p99[USUAL]),
        }
        for name in cpu
    }


def _other_allocator() -> Mapping[str, Variant]:
    """jemalloc where this machine has it."""
    library = find_library("jemalloc")
    return {} if library is None else {"jemalloc": Variant({"LD_PRELOAD": library})}


def _started(material: Material, folder: Path, variant: Variant) -> contextlib.AbstractContextManager[Server]:
    if not variant.config:
        return bench_server(material, variant.environment)
    lines = [f"{name}: {value}" for name, value in variant.config.items()]
    path = folder / "settings.yaml"
    path.write_text("\n".join([*lines, f"secret_file: {folder.absolute() / 'secret'}"]) + "\n")
    return bench_server(material, variant.environment, ["--config", str(path)])


def _closed(server: Server, bodies: Path, seconds: float) -> tuple[float, float]:
    """CPU µs per ranking, and rankings per second."""
    before = server.usage().cpu_s
    report = server.load(bodies, seconds=seconds)
    server.wait_applied()
    answered = max(len(report.latencies_s), 1)
    return (server.usage().cpu_s - before) * 1e6 / answered, answered / report.elapsed_s
