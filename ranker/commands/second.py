"""`nextaction train second`: a second stage over a version's light stage, published with it as a new version."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from features.registry import FINGERPRINT
from ranker.commands.activation import Settled, settle
from ranker.commands.errors import CommandError
from ranker.light_model import PLAIN, trees_file
from ranker.release.registry import Manifest, Registry
from ranker.terminal import Steps, plain, print_json, stdout, warn

if TYPE_CHECKING:
    from ranker.second.config import SecondConfig
    from training.second.fit import Report

CHECKPOINT = ".second-training"
"""In the registry's folder, with the run's own name after it: no version can be called so."""


def run(args: Namespace) -> int:
    """Trains and publishes."""
    from training.second.job import Request, train_second
    from training.second.publish import publish_second

    registry = Registry(args.models)
    light = _over(registry, args.over, args.models)
    config = _config(args)
    if (args.activate or args.override is not None) and args.ablate:
        raise CommandError(
            "a version trained by --ablate is judged and never serves: leave out --activate and --override"
        )
    until_s = _until_s(args, light)
    request = Request(
        args.log, light, until_s, config, args.hint, args.device, frozenset(args.ablate), args.models / CHECKPOINT,
        args.anew,
    )  # fmt: skip
    started_s = time.monotonic()
    with Steps() as steps:
        trained = train_second(request, steps, Told(steps))
        manifest = publish_second(registry, light, trained)
        if trained.checkpoint is not None:
            trained.checkpoint.unlink(missing_ok=True)
        settled = settle(registry, manifest.version, args, until_s, steps, first=False)
    _report(args, manifest, settled, trained.resumed, time.monotonic() - started_s)
    return settled.status


class Told:
    """Progress of a fit: a bar of batches, and a line an epoch, or now and then where one takes long.

    Args:
        every: batches between two looks at the bar.
        line_s: seconds without a line at most.
    """

    def __init__(
        self, steps: Steps, every: int = 5, line_s: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._steps, self._every, self._line_s, self._clock = steps, every, line_s, clock
        self._said_s = clock()

    def __call__(self, report: Report) -> None:
        """Hears of a batch."""
        done = (report.epoch - 1) * report.batches + report.batch
        if report.batch == report.batches or report.batch % self._every == 0:
            self._steps("second", done, report.epochs * report.batches)
        if report.batch == report.batches or self._clock() - self._said_s >= self._line_s:
            self._said_s = self._clock()
            where = "" if report.batch == report.batches else f", batch {report.batch} of {report.batches}"
            self._steps.say(
                f"epoch {report.epoch} of at most {report.epochs}{where}: loss {report.loss:.4f}, "
                f"{report.tokens_s:,.0f} tokens/s, {report.left_s:.0f} s left at most"
            )


def _over(registry: Registry, named: str | None, folder: Path) -> Manifest:
    """The version whose light stage is trained over."""
    if registry.folder.exists() and not registry.folder.is_dir():
        raise CommandError(f"{registry.folder} is not a folder")
    versions = [named] if named is not None else [each for each in reversed(registry.versions()) if each.isdecimal()]
    for version in versions:
        manifest = registry.manifest(version)
        if trees_file(PLAIN) not in manifest.files:
            continue
        if manifest.schema == FINGERPRINT:
            return manifest
        if named is not None:
            wanted = f"not this program's {FINGERPRINT}"
            raise CommandError(f"version {named} was made for schema {manifest.schema}, {wanted}")
    which = f"version {named}" if named is not None else "no version"
    raise CommandError(f"{which} in {folder} has a light stage of this schema: `nextaction train light` makes one")


def _config(args: Namespace) -> SecondConfig:
    from ranker.second.config import SecondConfig, load_second

    config = load_second(args.config)
    given = {name: getattr(args, name, None) for name in ("seed", "epochs", "threads")}
    tree = msgspec.to_builtins(config)
    tree["training"] |= {name: value for name, value in given.items() if value is not None}
    try:
        return msgspec.convert(tree, SecondConfig)
    except msgspec.ValidationError as error:
        raise CommandError(f"{error} (given: {given})") from error


def _until_s(args: Namespace, light: Manifest) -> float | None:
    """Where what is learned from ends: not beyond what the light stage has seen, unless asked for."""
    ends_s = None if light.data.until is None else datetime.fromisoformat(light.data.until).timestamp()
    until_s: float | None = args.until if args.until is not None else ends_s
    if until_s is not None and ends_s is not None and until_s < ends_s:
        warn(f"light {light.version} learned from what came before {light.data.until}, which is later than --until")
    return until_s


def _report(args: Namespace, manifest: Manifest, settled: Settled, resumed: bool, seconds: float) -> None:
    assert manifest.second is not None, "it was published with one"
    found: dict[str, Any] = {
        "version": manifest.version,
        "active": Registry(args.models).active(),
        "gate": settled.verdict,
        "activation": settled.told,
        "over": manifest.second.light,
        "schema": manifest.schema,
        "metrics": manifest.metrics,
        "second": msgspec.to_builtins(manifest.second),
        "extra": manifest.extra["second"],
        "files": msgspec.to_builtins(manifest.files),
        "resumed": resumed,
        "seconds": round(seconds, 3),
    }
    if args.json:
        print_json(found)
        return
    console, extra = stdout(), manifest.extra["second"]
    where = f"{args.models}, over light {manifest.second.light},"
    console.print(plain(f"version {manifest.version} in {where} {settled.told}"))
    console.print(
        plain(f"{extra['parameters']:,} parameters, best after epoch {extra['best_epoch']} of {extra['epochs']}, "
              f"padding {extra['padding']:.1%}")
    )  # fmt: skip
    for name, value in manifest.metrics.items():
        console.print(plain(f"{name}: {value:.4f}"))
    console.print(f"{seconds:.1f} s")
