"""`nextaction bench serve`: the service beside an echo of the same server, in one run."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.bench.figures import Latencies, growth, latencies, middle, percentile, plain, ratio, spread
from training.bench.grow import GROWTHS, Reach
from training.bench.load import ID_MARK, Report
from training.bench.material import Size, prepare
from training.bench.server import Server, bench_server

ECHO, RANK = "/echo", "/v1/rank"
OVERLOAD = 2.0
AROUND = (0.9, 1.0, 1.1)
"""Shares of an open loop's saturation among which its peak is looked for."""
LADDER = (0.6, 0.8, 1.0, 1.2, 1.4)
"""Shares of a closed loop's saturation among which an open loop's is looked for."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """How long and how large.

    Args:
        rounds: interleaved rounds of every ratio.
        closed_s: of each closed loop, which measures CPU and saturation.
        open_s: of each open loop, which measures latencies and goodput.
        deadline_ms: of every request; what comes later is not goodput.
        connections: of the closed loops.
        shares: of saturation at which latencies are measured.
        grow: up to where costs are followed; None follows none.
    """

    size: Size = field(default_factory=Size)
    candidates: int = 50
    rounds: int = 5
    closed_s: float = 3.0
    open_s: float = 3.0
    deadline_ms: float = 100.0
    connections: int = 8
    warm: int = 300
    shares: tuple[float, ...] = (0.25, 0.5, 0.75)
    grow: Reach | None = field(default_factory=Reach)


QUICK = Plan(Size(users=150, days=4), rounds=3, closed_s=1.0, open_s=2.0, grow=Reach(catalogue=1000, users=2000))


def bench_serve(plan: Plan, folder: Path, progress: Progress = lambda _: None) -> dict[str, Any]:
    """All figures, as plain JSON.

    Raises:
        TrainingError, LogError: the service or the load did not run.
    """
    started_s = time.monotonic()
    progress("material")
    material = prepare(folder, plan.size, time.time())
    with bench_server(material) as server:
        bench = ServeBench(plan, server, progress)
        report = bench.run()
    return {**plain(report), "machine": machine(), "seconds": round(time.monotonic() - started_s, 1)}


class ServeBench:
    """The measurements of one run, in order."""

    def __init__(self, plan: Plan, server: Server, progress: Progress) -> None:
        self._plan, self._server, self._progress = plan, server, progress
        material = server.material
        self._bodies = server.write(material.bodies(plan.candidates, budget_ms=plan.deadline_ms))
        self._with_id = server.write(material.bodies(plan.candidates, budget_ms=plan.deadline_ms, id=ID_MARK.decode()))

    def run(self) -> dict[str, Any]:
        """Costs, then latencies, overload and growth."""
        plan = self._plan
        self._server.load(self._bodies, seconds=60.0, count=plan.warm)
        self._server.load(self._with_id, seconds=60.0, count=plan.warm)
        costs = self._costs()
        saturation = costs["saturation"]["rank"].median
        report = {"candidates": plan.candidates, **costs, "loads": self._loads(saturation)}
        report["overload"] = self._overload(saturation)
        if plan.grow is not None:
            self._progress("growth")
            report["growth"] = {
                name: growth(grow(self._server, plan.grow, self._cpu_ms)) for name, grow in GROWTHS.items()
            }
        return report

    def _costs(self) -> dict[str, Any]:
        """CPU per request and saturation, in interleaved rounds."""
        cpu: dict[str, list[float]] = {"echo": [], "rank": [], "rank with id": []}
        rates: dict[str, list[float]] = {"echo": [], "rank": [], "rank with id": []}
        stages: dict[str, float] = {}
        answered = 0
        for turn in range(self._plan.rounds):
            self._progress(f"costs, round {turn + 1} of {self._plan.rounds}")
            for name, bodies, path in (
                ("echo", self._bodies, ECHO),
                ("rank", self._bodies, RANK),
                ("rank with id", self._with_id, RANK),
            ):
                report, cpu_us = self._closed(bodies, path)
                cpu[name].append(cpu_us)
                rates[name].append(len(report.latencies_s) / report.elapsed_s)
                if name == "rank":
                    answered += len(report.latencies_s)
                    for stage, took_ms in report.stages_ms.items():
                        stages[stage] = stages.get(stage, 0.0) + took_ms
        return {
            "cpu_us": {name: spread(values) for name, values in cpu.items()},
            "times_echo": {name: ratio(values, cpu["echo"]) for name, values in cpu.items() if name != "echo"},
            "saturation": {name: spread(values) for name, values in rates.items()},
            "stages_us": {stage: took_ms * 1000.0 / max(answered, 1) for stage, took_ms in stages.items()},
        }

    def _closed(self, bodies: Path, path: str) -> tuple[Report, float]:
        before = self._server.usage()
        report = self._server.load(bodies, path, seconds=self._plan.closed_s, connections=self._plan.connections)
        # What a ranking leaves to be applied is part of its cost.
        self._server.wait_applied()
        used_s = self._server.usage().cpu_s - before.cpu_s
        return report, used_s * 1e6 / max(len(report.latencies_s), 1)

    def _cpu_ms(self, bodies: Path, count: int) -> float:
        """CPU per ranking over `count` of them, one after the other."""
        before = self._server.usage()
        report = self._server.load(bodies, seconds=120.0, connections=1, count=count)
        self._server.wait_applied()
        return (self._server.usage().cpu_s - before.cpu_s) * 1000.0 / max(len(report.latencies_s), 1)

    def _loads(self, saturation: float) -> list[dict[str, Any]]:
        """Latencies of rankings, and of an echo at the same rate, in rounds in turn."""
        runs = [{"rank": list[Latencies](), "echo": list[Latencies]()} for _ in self._plan.shares]
        for turn in range(self._plan.rounds):
            for share, found in zip(self._plan.shares, runs, strict=True):
                self._progress(f"{share:.0%} of saturation, round {turn + 1} of {self._plan.rounds}")
                for name, path in (("rank", RANK), ("echo", ECHO)):
                    found[name].append(self._open(path, saturation * share, turn))
        return [
            {
                "share": share,
                **{name: middle(each) for name, each in found.items()},
                "spread_ratio": ratio(*([run.p99_ms - run.p50_ms for run in found[name]] for name in ("rank", "echo"))),
            }
            for share, found in zip(self._plan.shares, runs, strict=True)
        ]

    def _overload(self, closed: float) -> dict[str, Any]:
        """Goodput at twice what saturates, against the best there is.

        An open loop saturates elsewhere than a closed one: where more does not get more. That is looked for first;
        the peak is then the best of three rates around it, by the median over rounds in turn.
        """
        self._progress("saturation of an open loop")
        ladder = [self._open(RANK, closed * step, number) for number, step in enumerate(LADDER)]
        saturation = max(run.goodput for run in ladder)
        runs: dict[float, list[Latencies]] = {share: [] for share in (*AROUND, OVERLOAD)}
        for turn in range(self._plan.rounds):
            self._progress(f"overload, round {turn + 1} of {self._plan.rounds}")
            for share, found in runs.items():
                found.append(self._open(RANK, saturation * share, turn))
        peak = max(AROUND, key=lambda share: percentile([run.goodput for run in runs[share]], 0.5))
        goodput = {share: [run.goodput for run in found] for share, found in runs.items()}
        return {
            "saturation": saturation,
            "peak": middle(runs[peak]),
            "overloaded": middle(runs[OVERLOAD]),
            "goodput": {f"{share:g}": spread(values) for share, values in goodput.items()},
            "goodput_of_peak": ratio(goodput[OVERLOAD], goodput[peak]),
            "median_of_medians": percentile(goodput[OVERLOAD], 0.5) / max(percentile(goodput[peak], 0.5), 1e-9),
        }

    def _open(self, path: str, rate: float, seed: int = 0) -> Latencies:
        report = self._server.load(self._bodies, path, seconds=self._plan.open_s, rate=rate, seed=seed + 1)
        self._server.wait_applied()
        return latencies(report, rate, self._plan.open_s, self._plan.deadline_ms)


def machine() -> dict[str, Any]:
    """Where it was measured."""
    return {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
