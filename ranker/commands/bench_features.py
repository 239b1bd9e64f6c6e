"""`nextaction bench features`: one MGET of packed rows against a read per field."""

from __future__ import annotations

from argparse import Namespace

from ranker.terminal import plain, print_json, stdout


def run(args: Namespace) -> int:
    """Measures on an embedded store of its own."""
    from training.bench.features import FeaturesPlan, bench_features

    report = bench_features(FeaturesPlan(rows=args.rows, rounds=args.rounds))
    if args.json:
        print_json(report)
        return 0
    console = stdout()
    console.print(plain(f"reading {report['rows']} rows of {report['fields']} numbers, µs: median (least to most)"))
    for name, found in report["ways"].items():
        cpu, wall, times = found["cpu_us"], found["wall_us"], found["times_mget"]
        line = f"{cpu['median']:,.0f} ({cpu['least']:,.0f} to {cpu['most']:,.0f}) CPU, {wall['median']:,.0f} wall"
        console.print(plain(f"  {name:30} {line}, {times['median']:.1f} times the MGET"))
    return 0
