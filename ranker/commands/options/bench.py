"""The options of `nextaction bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranker.commands.options.bench_import import add_bench_import
from ranker.commands.options.bench_learning import add_learning
from ranker.commands.options.bench_second import add_second_benches
from ranker.commands.options.parsing import add_command, count, reports


def add_bench(commands: Any) -> None:
    """Adds `nextaction bench`."""
    benches = add_command(commands, "bench", "Measure speed on this machine.").add_subparsers(
        title="benches", metavar="BENCH", required=True
    )
    text = "The inference engine against the least that a batching server can do, in one run."
    core = add_command(benches, "core", text, "bench_core")
    core.add_argument("--rounds", type=count, default=5, help="of each figure, in turns (default 5)")
    core.add_argument("--seconds", type=count, default=4, help="of load in each round (default 4)")
    reports(core)
    text = "The service beside an echo of the same server: CPU, latency, overload and growth, in one run."
    serve = add_command(benches, "serve", text, "bench_serve")
    serve.add_argument("--data", type=Path, default=Path("nextaction-data/bench"), metavar="DIR", help="log and model")
    serve.add_argument("--quick", action="store_true", help="about two minutes: smaller, shorter, coarser")
    serve.add_argument("--soak", type=count, metavar="N", help="instead: resident memory over N requests of N users")
    serve.add_argument("--settings", action="store_true", help="instead: what each setting of the process is worth")
    serve.add_argument("--plot", type=Path, metavar="FILE", help="growth as an SVG")
    reports(serve)
    text = (
        "How often the intervals of off-policy estimates cover a truth that is known; fails outside 92 to 98 percent."
    )
    coverage = add_command(benches, "coverage", text, "bench_coverage")
    coverage.add_argument("--runs", type=count, default=2000, help="of each length of list (default 2000)")
    coverage.add_argument("--seed", type=int, default=0, help="of the world and its runs (default 0)")
    reports(coverage)
    text = "One MGET of packed rows against a read per field, on an embedded store."
    features = add_command(benches, "features", text, "bench_features")
    features.add_argument("--rows", type=count, default=51, help="read at once (default 51)")
    features.add_argument("--rounds", type=count, default=9, help="of each way, in turns (default 9)")
    reports(features)
    add_bench_import(benches)
    add_second_benches(benches)
    add_learning(benches)
