"""`nextaction train`: a version of the light ranker, or the text scorer of the safety stage."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.table import Table

from features.events import format_time, from_seconds
from ranker.commands.activation import Settled, settle
from ranker.commands.errors import CommandError
from ranker.commands.options.incremental import LAST
from ranker.config import load_train
from ranker.figures import unusable_lines
from ranker.release.registry import Manifest, Registry
from ranker.terminal import Steps, plain, print_json, stdout, warn

if TYPE_CHECKING:
    from training.parent import Parent
    from training.safety import SafetyReport, TrainedSafety


def run(args: Namespace) -> int:
    """One of the jobs."""
    return JOBS[args.job](args)


def _light(args: Namespace) -> int:
    from training.light import train_light
    from training.publish import has_hint, publish
    from training.resume import Span

    registry = Registry(args.models)
    _check(registry)
    config = load_train(args.config)
    parent = _parent(registry, args)
    span = Span(None if args.since == LAST else args.since, args.checkpoint)
    started_s = time.monotonic()
    with Steps() as steps:
        hint = args.hint is not False
        trained = train_light(args.log, args.until, hint, config, steps, span, parent)
        if args.hint and not has_hint(trained):
            warn(f"{args.log} has no typed hints, so there is no hint set")
        manifest = publish(registry, trained, config)
        settled = settle(registry, manifest.version, args, args.until, steps)
    unusable = [str(problem) for problem in trained.unusable]
    _report_light(args, manifest, settled, unusable, time.monotonic() - started_s)
    return settled.status


def _check(registry: Registry) -> None:
    """Finds out before minutes of work whether the result could be kept."""
    if registry.folder.exists() and not registry.folder.is_dir():
        raise CommandError(f"{registry.folder} is not a folder")
    registry.active()


def _parent(registry: Registry, args: Namespace) -> Parent | None:
    """The version to go on from, if any: `--since last` on an empty registry learns anew."""
    from training.parent import Parent, latest_light

    if args.parent is None and args.since != LAST:
        return None
    if args.parent is None and latest_light(registry) is None:
        warn(f"{args.models} has no version yet: learning from all of {args.log}")
        return None
    return Parent.load(registry, args.parent or "latest")


def _report_light(args: Namespace, manifest: Manifest, settled: Settled, unusable: list[str], seconds: float) -> None:
    found = {
        "version": manifest.version,
        "active": Registry(args.models).active(),
        "gate": settled.verdict,
        "activation": settled.told,
        "schema": manifest.schema,
        "metrics": manifest.metrics,
        "data": msgspec.to_builtins(manifest.data),
        "extra": manifest.extra,
        "files": msgspec.to_builtins(manifest.files),
        "unusable_lines": manifest.extra["unusable_lines"],
        "unusable_examples": unusable,
        "seconds": round(seconds, 3),
    }
    if args.json:
        print_json(found)
        return
    console = stdout()
    console.print(plain(f"version {manifest.version} in {args.models} {settled.told}"))
    data = manifest.data
    queries = manifest.extra["queries"]
    console.print(
        plain(f"learned from {data.since} to before {data.until}: {data.events:,} events, {queries:,} queries")
    )
    lineage = manifest.extra.get("lineage", {})
    if lineage.get("parent") is not None:
        told = f"goes on from version {lineage['parent']} since {lineage['since']}, generation {lineage['generation']}"
        console.print(plain(told))
    for name, value in manifest.metrics.items():
        console.print(plain(f"{name}: {value:.4f}"))
    if unusable:
        for line in unusable_lines(manifest.extra["unusable_lines"], unusable):
            console.print(line)
    console.print(f"{seconds:.1f} s")


def _safety(args: Namespace) -> int:
    from training.safety import SafetySettings, train_safety

    with Steps() as steps:
        steps("safety")
        trained = train_safety(args.labelled, SafetySettings(alpha=args.alpha))
    if args.models is not None and not (trained.report.feasible or args.allow_infeasible):
        raise CommandError(
            f"{trained.report.note}; not put into {args.models}: "
            "label more, take a larger --alpha, or install it all the same with --allow-infeasible"
        )
    path = None if args.models is None else _keep(trained, args.models, args.labelled)
    report = trained.report
    if args.json:
        print_json({**msgspec.to_builtins(report), "file": None if path is None else str(path)})
    else:
        _show_safety(report, path)
    return 0


def _keep(trained: TrainedSafety, models: Path, labelled: Path) -> Path:
    from training.safety_cases import sha256_of
    from training.safety_record import install_trained

    return install_trained(models, trained.scorer, format_time(from_seconds(time.time())), sha256_of(labelled))


def _show_safety(report: SafetyReport, path: Path | None) -> None:
    table = Table("", "share", "95 % bounds", "cases")
    for name, share in (("unsafe that pass", report.missed), ("safe that are withheld", report.withheld)):
        bounds = "—" if share.lower is None or share.upper is None else f"{share.lower:.2%} … {share.upper:.2%}"
        part = "—" if share.share is None else f"{share.share:.2%}"
        table.add_row(name, part, bounds, f"{share.count:,} of {share.of:,}")
    console = stdout()
    console.print(table)
    console.print(plain(f"{report.texts:,} texts, {report.unsafe:,} unsafe, {report.conflicts:,} with both labels"))
    console.print(plain(f"threshold {report.threshold:.4f}: {report.note}"))
    console.print(plain("not kept: --models was not given" if path is None else f"written to {path}"))


def _second(args: Namespace) -> int:
    from ranker.commands import second

    return second.run(args)


JOBS: Mapping[str, Callable[[Namespace], int]] = {"light": _light, "second": _second, "safety": _safety}
