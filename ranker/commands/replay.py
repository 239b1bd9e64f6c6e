"""`nextaction replay`: a log played against a version, beside what was logged."""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.table import Table

from features.events import format_time, from_seconds
from ranker.commands.errors import CommandError
from ranker.commands.evaluate import newest
from ranker.commands.options.release import IN_PROCESS
from ranker.release.registry import Registry
from ranker.terminal import Steps, plain, print_json, stdout, warn

if TYPE_CHECKING:
    from training.gates.arms import Arm
    from training.replaying.in_process import PlayPlan
    from training.replaying.pace import Pace
    from training.replaying.played import Played

SHOWN_SLICES = 24
READY_S = 10.0


def run(args: Namespace) -> int:
    """Fails where nothing could be played, or the service answered nothing."""
    from training.replaying.compare import Comparison
    from training.replaying.in_process import PlayPlan
    from training.replaying.keep import check_target, keep
    from training.replaying.pace import Pace

    registry, arm = _arm(args)
    if args.to is not None:
        check_target(args.log, args.to)
    since_s = args.since if args.since is not None else -math.inf
    plan = PlayPlan(args.log, since_s, args.limit, float(args.budget_ms))
    found, started_s = Comparison(), time.monotonic()
    with Steps() as steps, _answers(args, plan, arm, Pace(args.speed), steps) as answers:
        kept = keep(found.take(answers), args.to)
    if not found.whole.rankings:
        raise CommandError(f"{args.log} has no ranking to play{_from(args)}")
    if found.whole.errors == found.whole.rankings:
        raise CommandError(f"none of {found.whole.rankings} rankings was answered: {found.first_error}")
    with Steps() as steps:
        value = _off_policy(args, registry, arm, since_s, steps)
    others = sorted(name for name, count in found.versions.items() if count and name != arm.name)
    if others:
        warn(f"answered by {', '.join(others)} (none: the priors) too, and not by version {arm.name} alone")
    report = {
        "version": arm.name,
        "log": str(args.log),
        "url": args.url,
        "since": None if args.since is None else format_time(from_seconds(args.since)),
        "speed": "max" if math.isinf(args.speed) else args.speed,
        **found.to_json(),
        "off_policy": value,
        "kept": kept,
        "to": None if args.to is None else str(args.to),
        "seconds": round(time.monotonic() - started_s, 3),
    }
    if args.json:
        print_json(report)
    else:
        _show(report)
    return 0


def _arm(args: Namespace) -> tuple[Registry, Arm]:
    from training.gates.arms import load_arm

    if not args.models.is_dir():
        raise CommandError(f"{args.models} is not a folder, so it has no versions")
    registry = Registry(args.models)
    version = args.version or registry.active() or newest(registry)
    if version is None:
        raise CommandError(f"{args.models} has no version to play against: `nextaction train light` makes one")
    return registry, load_arm(registry, version)[0]


@contextmanager
def _answers(args: Namespace, plan: PlayPlan, arm: Arm, pace: Pace, steps: Steps) -> Iterator[Iterable[Played]]:
    """From this process, or from the service."""
    from training.replaying.in_process import play_here
    from training.replaying.over_http import play_over_http

    def progress(done: int) -> None:
        steps("play", done)

    if args.url == IN_PROCESS:
        yield play_here(plan, arm, pace, progress)
        return
    from ranker.client import Client

    if not args.url.startswith(("http://", "https://")):
        raise CommandError(f"--url {args.url!r} is neither {IN_PROCESS} nor starts with http:// or https://")
    with Client(args.url, timeout_s=30.0, caller="replay") as client:
        client.wait_ready(READY_S)
        yield play_over_http(plan, client, pace, progress)


def _off_policy(args: Namespace, registry: Registry, arm: Arm, since_s: float, steps: Steps) -> dict[str, Any]:
    """What the version would have been worth to the people of the log; or why the log cannot say."""
    from ranker.config import load_serve
    from ranker.propensity import Exploration
    from training.gates.arms import VersionArm
    from training.off_policy.errors import OffPolicyError
    from training.off_policy.gather import gather
    from training.off_policy.judge import JudgeConfig, judge
    from training.off_policy.targets import Version

    if not isinstance(arm, VersionArm) or arm.second is not None:
        return {"verdict": "not estimated", "why": "a second stage is not judged off-policy"}
    serve = load_serve(args.serve_config)
    exploration = Exploration(serve.epsilon, serve.temperature)
    target = Version(arm.light, exploration, arm.name)
    try:
        gathered = gather(args.log, target, exploration, lambda done: steps("off-policy", done), None, since_s)
        whole, _ = judge(gathered, JudgeConfig(draws=0))
    except OffPolicyError as error:
        return {"verdict": "not estimated", "why": str(error)}
    shown = {name: {"logged": found.logged, "estimates": found.estimates} for name, found in whole.rewards.items()}
    until = registry.manifest(arm.name).data.until
    return {"verdict": whole.verdict, "slates": whole.slates, "rewards": shown, "learned_until": until}


def _from(args: Namespace) -> str:
    return "" if args.since is None else f" from {format_time(from_seconds(args.since))} on"


def _show(report: dict[str, Any]) -> None:
    console = stdout()
    if report["first_error"]:
        warn(f"{report['errors']} were not answered, the first: {report['first_error']}")
    played = f"{report['rankings']:,} rankings of {report['log']} at speed {report['speed']}"
    console.print(plain(f"version {report['version']} at {report['url']}: {played}"))
    console.print(_table("all and traffic", {"all": report, **report["traffic"]}))
    largest = sorted(report["slices"], key=lambda name: (-report["slices"][name]["rankings"], name))[:SHOWN_SLICES]
    console.print(_table("slices", {name: report["slices"][name] for name in sorted(largest)}))
    features = report["features"]
    if features["rows"]:
        moved = ", ".join(f"{name} {each['kl']:.3f}" for name, each in list(features["drift"].items())[:3])
        exact = f"{features['exact_share']:.1%} of {features['rows']:,} logged vectors are the same to the bit"
        console.print(plain(f"features: {exact}; most drift (KL): {moved}"))
    console.print(plain(f"off-policy: {_value(report['off_policy'])}"))
    if report["to"] is not None:
        console.print(plain(f"{report['kept']:,} answers kept in {report['to']}"))
    console.print(plain(f"{report['seconds']:.1f} s"))


def _table(title: str, groups: dict[str, Any]) -> Table:
    table = Table("", title=title, title_justify="left")
    for heading in ("rankings", "overlap@k", "same first", "tau", "score KL", "p50 ms", "p95", "p99", "degraded"):
        table.add_column(heading, justify="right")
    for name, group in groups.items():
        figures = (group["overlap@k"], group["same_first"], group["kendall_tau"], group["score_drift"]["kl"])
        times = (group["latency_ms"].get(f"p{place}") for place in (50, 95, 99))
        shown = (*map(_figure, figures), *map(_figure, times), _figure(group["degraded_share"]))
        table.add_row(plain(name), f"{group['rankings']:,}", *shown)
    return table


def _figure(value: float | None) -> str:
    return "—" if value is None else f"{value:.3f}"


def _value(found: dict[str, Any]) -> str:
    if "rewards" not in found:
        return f"{found['verdict']}: {found['why']}"
    useful = found["rewards"].get("usefulness", {"estimates": {}, "logged": None})
    snips = useful["estimates"].get("snips")
    logged = "—" if useful["logged"] is None else f"{useful['logged'].value:.4f}"
    if snips is None:
        return f"{found['verdict']}; as logged {logged}"
    return f"usefulness per ranking {snips.value:.4f} ({snips.low:.4f} … {snips.high:.4f}), as logged {logged}"
