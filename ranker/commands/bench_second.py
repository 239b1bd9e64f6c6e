"""`nextaction bench second`: what pages and batches are worth to the second stage on this machine."""

from __future__ import annotations

import os
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ranker.commands.errors import CommandError
from ranker.terminal import plain, stdout

if TYPE_CHECKING:
    from training.bench.figures import Spread

RATIOS = {64: 1.3, 256: 3.0, 512: 5.0, 1024: 9.0}
MULTIPLES = {256: 2.5, 1024: 5.0}
CAPPED, OF_PEAK = 1.8, 0.4


def run(args: Namespace) -> int:
    """Measures; the targets are printed beside the figures, and judged by whoever reads them."""
    if (args.models is None) != (args.log is None):
        raise CommandError("--models and --log are needed together")
    from training.bench.figures import plain as plainly
    from training.bench.second import PASSED_ON, Size, measure, measure_service, quick
    from training.bench.second_service import ServiceLoad

    console = stdout()
    tell = (lambda _: None) if args.json else (lambda text: console.print(plain(f"  {text}")))
    loaded = tuple(length for length in args.lengths if length in MULTIPLES) or args.lengths[-1:]
    size = quick(args.lengths) if args.quick else Size(args.lengths, loaded, args.rounds)
    with tempfile.TemporaryDirectory(prefix="nextaction-bench-") as folder:
        if args.service:
            load = ServiceLoad(users=8, seconds=1.0, steps=1, least=1) if args.quick else ServiceLoad()
            report = measure_service(loaded, load, Path(folder), tell)
        else:
            report = measure(size, Path(folder), tell)
    if args.models is not None:
        report["judged"] = _judged(args, PASSED_ON, tell)
    machine = {"cores": _cores(), "threads": 1, "load_1m": os.getloadavg()[0], "gpu": "not measured"}
    if args.json:
        print(msgspec.json.encode(plainly({**report, "machine": machine})).decode(), flush=True)
        return 0
    for line in table(report, machine):
        console.print(plain(line))
    return 0


def table(report: Mapping[str, Any], machine: Mapping[str, Any]) -> list[str]:
    """The figures as lines: median over the rounds, then (least to most)."""
    head = f"{machine['cores']} cores, one computes, load {machine['load_1m']:.1f}; GPU: {machine['gpu']}"
    if "service" in report:
        return [head, *_services(report)]
    lines = [
        head,
        "d 128, 4 layers, random weights, 50 candidates, one new event; ms of processor time",
    ]
    for row in report["cost"]:
        length = row["length"]
        lines.append(f"{length} events, {row['kv']}: cached {_of(row['cached_ms'])} ms")
        lines.append(f"  cached, in batches of 8  {_of(row['batched_ms'])} ms")
        lines.append(f"  recomputed (faster way)  {_of(row['recomputed_ms'])} ms")
        lines.append(f"  recomputed over cached   {_of(row['ratio'])}{_least(RATIOS.get(length))}")
        lines.append(f"  alone over one in a batch {_of(row['ratio_batched'])}{_least(RATIOS.get(length))}")
        lines.append(f"  the plain network over cached {_of(row['ratio_by_network'])}{_least(RATIOS.get(length))}")
        lines.append(f"  useful FLOP/s of peak    {_of(row['cached_of_peak'])}{_least(OF_PEAK)}")
        lines.append(f"  the same, in batches     {_of(row['batched_of_peak'])}{_least(OF_PEAK)}")
        lines.append(f"  the same, recomputed     {_of(row['recomputed_of_peak'])}{_least(OF_PEAK)}")
        lines.append(f"  peak                     {_of(row['peak_gflops'], 0)} GFLOP/s")
    for row in report["pages"]:
        size = f"{row['full_pages']} pages of {row['page_bytes']:,} B, {row['bytes_per_event']:,.0f} B an event"
        error = (
            f"logits off by at most {row['logit_error_max']:.2g}, {row['logit_error_of_spread']:.2g} of their spread"
        )
        lines.append(f"{row['length']} events in {row['kv']}: {size}; {error}")
    for name, targets in (("load", MULTIPLES), ("capped", {})):
        for row in report[name]:
            lines += _load(row, targets.get(row["length"]) if name == "load" else CAPPED)
    for row in report["passed_on"]:
        lines.append(f"{row['passed_on']} passed on: {_of(row['cpu_ms'])} ms")
    for row in report.get("judged", ()):
        figures = ", ".join(f"{name} {value:.4f}" for name, value in row.items() if isinstance(value, float))
        lines.append(f"{row['passed_on'] or 'all'} passed on, version {row['version']}: {figures}")
    return lines


def _load(row: Mapping[str, Any], target: float | None) -> list[str]:
    memory = f"memory for {row['users_that_fit']:g} of {row['users']} users, {row['memory_used']:.0%} of it used"
    return [
        f"{row['length']} events, {memory}: in time within 100 ms, a second of processor time",
        f"  pages and batches        {_of(row['per_s'], 0)}, neither at most {_of(row['per_s_off_at_most'], 1)}",
        f"  multiple                 {_of(row['multiple'])}{_least(target)}; tokens found {row['tokens_found']:.0%}",
        f"  waited for pages         {row['waited_for_pages']}; memory within 85 %: {row['memory_within']}",
    ]


def _services(report: Mapping[str, Any]) -> list[str]:
    lines = ["d 128, 4 layers, random weights, 50 candidates, one new event before each ranking; over HTTP"]
    for name, targets in (("service", MULTIPLES), ("service_capped", {})):
        for row in report[name]:
            lines += _service(row, targets.get(row["length"]) if name == "service" else CAPPED)
    return lines


def _service(row: Mapping[str, Any], target: float | None) -> list[str]:
    memory, rates = row["memory"], f"{_of(row['per_s'], 1)}, neither {_of(row['per_s_off'], 1)}"
    multiple = _of(row["multiple"]) if row["multiple"] is not None else row["no_multiple"]
    limit = f"memory of {row['memory_mib']} MiB" + (" for half of the users" if row["capped"] else "")
    held = f"{memory['share']:.1%} used (at most {memory['most']:.0%}), {row['failures']} failed; held: {row['held']}"
    lines = [
        f"{row['length']} events, {row['users']} users: ranked by it within {row['bound_ms']:g} ms, a second",
        f"  pages and batches        {rates}",
        f"  multiple                 {multiple}{_least(target)}",
        f"  {limit}: {held}",
    ]
    for name, way in (("cpu_ms", "pages and batches"), ("cpu_ms_off", "neither")):
        if row[name] is not None:
            lines.append(f"  ms of CPU each, {way}: {_of(row[name])}")
    if row["looser"] is not None:
        loose = row["looser"]
        rates = f"{_of(loose['per_s'], 1)}, neither {_of(loose['per_s_off'], 1)}"
        times = _of(loose["multiple"]) if loose["multiple"] is not None else "none"
        lines.append(f"  within {loose['bound_ms']:g} ms            {rates}; multiple {times}")
    return lines


def _judged(args: Namespace, counts: Any, tell: Any) -> list[dict[str, Any]]:
    from ranker.commands.evaluate import until_s_of
    from training.bench.second_judged import by_passed_on
    from training.errors import TrainingError

    try:
        return by_passed_on(args.models, args.log, counts, until_s_of, tell)
    except TrainingError as error:
        raise CommandError(str(error)) from error


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _least(target: float | None) -> str:
    return f" (at least {target:g})" if target is not None else ""


def _of(found: Spread, digits: int = 2) -> str:
    return f"{found.median:.{digits}f} ({found.least:.{digits}f} to {found.most:.{digits}f})"
