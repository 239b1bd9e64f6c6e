"""`nextaction evaluate`: every stage judged on the same queries of a replayed log."""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from features.events import format_time, from_seconds
from features.label_config import LabelSettings, OutcomeWindows
from features.registry import FINGERPRINT
from ranker.commands.errors import CommandError
from ranker.figures import counts_line, intervals_table, slices_table, stages_table, unusable_lines
from ranker.light_model import HINT, LightModel
from ranker.release.errors import RegistryError
from ranker.release.registry import Manifest, Registry
from ranker.terminal import Steps, plain, print_json, stdout, warn

if TYPE_CHECKING:
    from training.second.judge import SecondJudge

LIGHT, SECOND = "light", "second"
JUDGE_THREADS = 2
"""A query's matrices are small: more threads would only wait for one another."""
LAST_ITEM = "last-item"

T = TypeVar("T", LabelSettings, OutcomeWindows)


@dataclass
class Chosen:
    """What is judged.

    Args:
        version: None where the registry has none.
        fits: whether the version was made for this program's feature schema.
        labels, outcomes: what it was trained for.
    """

    version: str | None = None
    light: LightModel | None = None
    second: SecondJudge | None = None
    until_s: float | None = None
    fits: bool = True
    labels: LabelSettings = field(default_factory=LabelSettings)
    outcomes: OutcomeWindows = field(default_factory=OutcomeWindows)
    warnings: list[str] = field(default_factory=list)


def run(args: Namespace) -> int:
    """Fails when nothing can be judged, or the version was made for another feature schema."""
    from training.errors import TrainingError
    from training.evaluate import EvaluateConfig, evaluate

    chosen = _choose(args)
    since_s = _since_s(args, chosen)
    for text in chosen.warnings:
        warn(text)
    started_s = time.monotonic()
    with Steps() as steps:
        try:
            config = EvaluateConfig(since_s, hint=args.hint, labels=chosen.labels, outcomes=chosen.outcomes)
            progress = partial(steps, "replay")
            evaluation = evaluate(args.log, chosen.light, config, progress, chosen.second)
        except TrainingError as error:
            raise CommandError(f"at or after {format_time(from_seconds(since_s))}: {error}{_way(args)}") from error
        evaluation.versions = _versions(chosen)
        steps("intervals")
        report = {
            **evaluation.to_json(),
            "version": chosen.version,
            "since": format_time(from_seconds(since_s)),
            "warnings": chosen.warnings,
            "seconds": round(time.monotonic() - started_s, 3),
        }
    if args.json:
        print_json(report)
    else:
        show(report)
    return 0 if chosen.fits else 1


def show(report: dict[str, Any]) -> None:
    """The report for people."""
    console = stdout()
    version = f"version {report['version']}" if report["version"] is not None else "no version"
    hint = ", with what was typed" if report["hint"] else ""
    console.print(plain(f"{version}, judged from {report['since']} on{hint}"))
    console.print(stages_table(report))
    console.print(intervals_table(report))
    console.print(slices_table(report))
    console.print(counts_line("excluded", report["excluded"]))
    for line in unusable_lines(report["unusable_lines"], report["unusable_examples"]):
        console.print(line)
    console.print(f"{report['seconds']:.1f} s")


def _choose(args: Namespace) -> Chosen:
    if args.models is None:
        raise CommandError("--models is needed to judge a version (--off-policy does without for --target uniform)")
    registry = Registry(args.models)
    if args.models.exists() and not args.models.is_dir():
        raise CommandError(f"{args.models} is not a folder")
    version = args.version or newest(registry)
    if version is None:
        return Chosen(warnings=[f"light: missing: {args.models} has no version; judged without light"])
    manifest = registry.manifest(version)
    chosen = Chosen(version, until_s=until_s_of(manifest))
    chosen.labels = _trained(manifest, "labels", LabelSettings)
    chosen.outcomes = _trained(manifest, "outcomes", OutcomeWindows)
    if manifest.schema != FINGERPRINT:
        chosen.fits = False
        text = f"light: schema {manifest.schema} of version {version} is not this program's {FINGERPRINT}"
        chosen.warnings.append(f"{text}; judged without light")
        return chosen
    chosen.light = LightModel.load(registry, version, manifest.schema, manifest.files)
    if args.hint and HINT not in chosen.light.kinds:
        chosen.warnings.append(f"version {version} has no hint set: it never learned from what users typed")
    if manifest.second is not None:
        chosen.second = _second(registry, manifest, chosen)
    return chosen


def _second(registry: Registry, manifest: Manifest, chosen: Chosen) -> SecondJudge:
    """What scores by the version's second stage."""
    import torch

    from ranker.second.weights import is_second_file, load_second_model
    from training.second.judge import SecondJudge

    torch.set_num_threads(min(torch.get_num_threads(), JUDGE_THREADS))

    files = {name: registry.read(manifest.version, name) for name in manifest.files if is_second_file(name)}
    model = load_second_model(files, manifest, to_judge=True)
    assert model is not None, "its manifest has one"
    if model.without:
        chosen.warnings.append(f"second: trained without {', '.join(sorted(model.without))}, to be judged only")
    return SecondJudge(model)


def _trained(manifest: Manifest, section: str, kind: type[T]) -> T:
    """A section of the configuration that a version was trained with; what was not recorded is as by default."""
    recorded = manifest.extra.get("config")
    try:
        return msgspec.convert(recorded.get(section, {}) if isinstance(recorded, dict) else {}, kind)
    except msgspec.ValidationError as error:
        raise CommandError(f"version {manifest.version}: config.{section}: {error}") from error


def newest(registry: Registry) -> str | None:
    """The version that was published last of those that can serve, None without any."""
    versions = [version for version in registry.versions() if not _only_judged(registry, version)]
    return next(reversed([version for version in versions if version.isdecimal()] or versions), None)


def _only_judged(registry: Registry, version: str) -> bool:
    """Whether a version belongs to `--protocol last-item`; what is broken is not passed over."""
    try:
        return registry.manifest(version).kind == LAST_ITEM
    except RegistryError:
        return False


def until_s_of(manifest: Manifest) -> float | None:
    """Where a version's data ends, in Unix seconds."""
    if manifest.data.until is None:
        return None
    try:
        return datetime.fromisoformat(manifest.data.until).timestamp()
    except ValueError as error:
        raise CommandError(f"version {manifest.version}: data.until {manifest.data.until!r} is not a time") from error


def _since_s(args: Namespace, chosen: Chosen) -> float:
    since_s: float | None = args.since if args.since is not None else chosen.until_s
    if since_s is None:
        raise CommandError(f"--since is needed: {args.models} has no version whose data's end could be taken")
    if chosen.light is not None and chosen.until_s is not None and since_s < chosen.until_s:
        until = format_time(from_seconds(chosen.until_s))
        chosen.warnings.append(
            f"version {chosen.version} learned from what came before {until}: some judged queries were trained on"
        )
    return since_s


def _way(args: Namespace) -> str:
    """What gives queries to judge, where no date was asked for."""
    if args.since is not None:
        return ""
    return (
        "; the version learned from all there is: `nextaction train light --until DATE` holds the end back, "
        "then evaluate again (--since DATE judges from DATE on, what was learned from as well)"
    )


def _versions(chosen: Chosen) -> dict[str, str]:
    stages = ((LIGHT, chosen.light), (SECOND, chosen.second))
    named = {name: chosen.version for name, stage in stages if stage is not None and chosen.version}
    return {"schema": FINGERPRINT, **named}
