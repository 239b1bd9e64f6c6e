"""`nextaction bench soak`: whether the second stage's memory stays as it is over many requests."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from ranker.commands.errors import CommandError
from ranker.terminal import plain, print_json, stdout


def run(args: Namespace) -> int:
    """Measures; the figures are judged by whoever reads them."""
    if sys.platform != "linux":
        raise CommandError("bench soak needs Linux")
    from training.bench.second_soak import soak

    console = stdout()
    tell = (lambda _: None) if args.json else (lambda text: console.print(plain(f"  {text}")))
    with tempfile.TemporaryDirectory(prefix="nextaction-soak-") as folder:
        report = soak(args.requests, args.length, args.kv, Path(folder), tell)
    if args.json:
        print_json(report)
        return 0
    resident, faults = report["resident_mib"], report["faults_per_request"]
    for line in (
        f"{report['requests']:,} requests of {report['users']:,} users; {report['tokens_found']:.0%} of tokens found",
        f"  resident MiB: {resident[0]:.1f} warm, {resident[1]:.1f} after a tenth, {resident[-1]:.1f} at the end",
        f"  page faults a request: {faults[0]:.2f} in the first tenth, {faults[-1]:.2f} in the last",
        f"  pool: grew by {report['pool_grown_bytes']} bytes, {report['pool_used']:.0%} of its limit used",
    ):
        console.print(plain(line))
    return 0
