"""`nextaction profile`: where the memory of a service is, or of a workload that runs here."""

from __future__ import annotations

import sys
from argparse import Namespace

import httpx

from ranker.client import Client, ClientError
from ranker.commands.errors import CommandError
from ranker.commands.profile_report import show
from ranker.inference.hot_spots import KEPT_S
from ranker.inference.memory_report import MemoryReport, memory_report
from ranker.inference.plan_numbers import PlanError, positive
from ranker.terminal import print_json

USAGE = 2


def run(args: Namespace) -> int:
    """Fails with one line when no service answers; 2 for a window that cannot be."""
    try:
        window_s = positive("seconds", args.seconds, most=float(KEPT_S))
    except PlanError as error:
        print(f"nextaction: error: {error}", file=sys.stderr, flush=True)
        return USAGE
    report = _worked(args, window_s) if args.workload else _asked(args.url, window_s)
    if args.json:
        print_json(report)
    else:
        show(report, "this workload" if args.workload else args.url)
    return 0


def _asked(url: str, window_s: float) -> MemoryReport:
    try:
        with Client(url) as client:
            return client.memory(window_s)
    except (httpx.InvalidURL, ClientError) as error:
        raise CommandError(f"--url {url}: {error}") from error


def _worked(args: Namespace, window_s: float) -> MemoryReport:
    from ranker.commands.profile_workload import Workload

    with Workload(args.seed) as workload:
        for _ in range(args.batches):
            workload.batch()
        return memory_report([workload.source], window_s, {"batches": args.batches, "busy": workload.busy})
