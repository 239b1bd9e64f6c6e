"""`--protocol last-item`: trains and judges on sequences, each user's last item being the answer."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ranker.commands.errors import CommandError
from ranker.figures import counts_line, intervals_table, slices_table, stages_table, unusable_lines
from ranker.release.registry import Manifest, Registry
from ranker.terminal import Steps, plain, print_json, stdout, warn

if TYPE_CHECKING:
    from training.last_item.fit import Epoch
    from training.last_item.settings import FitSettings

KIND = "last-item"


def run(args: Namespace) -> int:
    """Trains for `nextaction train second`, else judges."""
    return _train(args) if getattr(args, "job", None) == "second" else _evaluate(args)


def _train(args: Namespace) -> int:
    from training.last_item.train import (
        Job,
        checkpoints_of,
        clear_checkpoints,
        publish_last_item,
        train_last_item,
    )

    _refuse(args, until="--until", over="--over", ablate="--ablate", activate="--activate")
    if getattr(args, "device", "auto") not in ("auto", "cpu"):
        raise CommandError(f"--device {args.device}: --protocol last-item learns on the CPU")
    registry = Registry(args.models)
    if args.models.exists() and not args.models.is_dir():
        raise CommandError(f"{args.models} is not a folder")
    settings = _settings(args)
    job = Job(settings, bool(args.baselines), checkpoints_of(args.models), anew=getattr(args, "anew", False))
    started_s = time.monotonic()
    with _threads(settings.threads), Steps() as steps:
        trained = train_last_item(args.log, job, _Told(steps))
        manifest = publish_last_item(registry, trained)
        clear_checkpoints(job, trained)
    _report(args, registry, manifest, time.monotonic() - started_s)
    return 0


def _settings(args: Namespace) -> FitSettings:
    import msgspec

    from training.last_item.settings import FitSettings, load_fit

    given = {name: getattr(args, name, None) for name in ("seed", "epochs", "threads")}
    wanted = {name: value for name, value in given.items() if value is not None}
    try:
        return msgspec.convert(msgspec.structs.asdict(load_fit(args.config)) | wanted, FitSettings)
    except msgspec.ValidationError as error:
        raise CommandError(f"{error} (given: {given})") from error


class _Told:
    """Progress of a training, at most one line a second."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __call__(self, what: str, epoch: Epoch | None) -> None:
        if epoch is None:
            self._steps(what)
            return
        self._steps(what, epoch.number, epoch.most)
        line = (
            f"{what}: epoch {epoch.number}, loss {epoch.loss:.3f}, NDCG@10 {epoch.ndcg:.4f} on the validation items, "
            f"{epoch.events_per_s:,.0f} events/s, {epoch.left_s:.0f} s left unless it gets better"
        )
        self._steps.say(line)


def _report(args: Namespace, registry: Registry, manifest: Manifest, seconds: float) -> None:
    import msgspec

    found = {
        "version": manifest.version,
        "active": registry.active(),
        "schema": manifest.schema,
        "metrics": manifest.metrics,
        "data": msgspec.to_builtins(manifest.data),
        "extra": manifest.extra,
        "files": msgspec.to_builtins(manifest.files),
        "seconds": round(seconds, 3),
    }
    if args.json:
        print_json(found)
        return
    console, counts = stdout(), manifest.extra["counts"]
    console.print(plain(f"version {manifest.version} in {args.models}, to be judged only: it never serves"))
    console.print(
        plain(
            f"learned from {counts['train_events']:,} events of {counts['users']:,} users and "
            f"{counts['vocabulary']:,} items; {counts['train_only_users']:,} users have too few to be judged"
        )
    )
    for name, value in manifest.metrics.items():
        console.print(plain(f"{name}: {value:.4f}"))
    blend = manifest.extra["blend"]
    console.print(plain(f"the network to the power {blend['network']:g}, transitions to the power {blend['weight']:g}"))
    for name, standing in manifest.extra["standings"].items():
        if standing["ended"] == "time":
            warn(f"{name}: ended for time after {standing['epochs']} epochs, not because it got no better")
    console.print(f"{seconds:.1f} s")


def _evaluate(args: Namespace) -> int:
    from training.last_item.evaluate import JudgeConfig, judge_last_item
    from training.last_item.version import load_version

    _refuse(args, since="--since", hint="--hint")
    if args.models is None:
        raise CommandError("--models is needed to judge a version")
    registry = Registry(args.models)
    if args.models.exists() and not args.models.is_dir():
        raise CommandError(f"{args.models} is not a folder")
    started_s = time.monotonic()
    name = args.version or _newest(registry)
    with _threads(1), Steps() as steps:
        version = None if name is None else load_version(registry, name)
        config = JudgeConfig(mask_history=args.mask_history, parts=args.parts)
        evaluation = judge_last_item(args.log, version, config, steps)
        steps("intervals")
        report: dict[str, Any] = {
            **evaluation.to_json(),
            "version": name,
            "since": None,
            "versions": {} if name is None else {"second": name},
        }
    if name is None:
        report["warnings"].append(f"{args.models} has no version of this protocol; judged without one")
    report["seconds"] = round(time.monotonic() - started_s, 3)
    for text in report["warnings"]:
        warn(text)
    if args.json:
        print_json(report)
    else:
        _show(report)
    return 0


def _show(report: dict[str, Any]) -> None:
    console = stdout()
    version = f"version {report['version']}" if report["version"] is not None else "no version"
    masked = ", without what users have had" if report["mask_history"] else ""
    console.print(plain(f"{version}, the last item of each user among {report['items']:,}{masked}"))
    console.print(stages_table(report))
    console.print(intervals_table(report, by="user"))
    console.print(slices_table(report, "ndcg@10"))
    console.print(counts_line("excluded", report["excluded"]))
    console.print(counts_line("answers", report["answers"]))
    for line in unusable_lines(report["unusable_lines"], report["unusable_examples"]):
        console.print(line)
    console.print(f"{report['seconds']:.1f} s")


def _newest(registry: Registry) -> str | None:
    """The newest version of this protocol; a broken one is passed over."""
    from ranker.release.errors import RegistryError

    for version in reversed(registry.versions()):
        try:
            if registry.manifest(version).kind == KIND:
                return version
        except RegistryError:
            continue
    return None


def _refuse(args: Namespace, **options: str) -> None:
    """Options of the other protocol are a misunderstanding, not to be passed over."""
    for name, option in options.items():
        if getattr(args, name, None):
            raise CommandError(f"{option} does not go with --protocol last-item")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads of torch, for as long as it lasts."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
