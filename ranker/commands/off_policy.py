"""`nextaction evaluate --off-policy`: what a target would have been worth, from the log of another policy."""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from features.events import format_time, from_seconds
from ranker.commands.errors import CommandError
from ranker.commands.evaluate import until_s_of
from ranker.figures import counts_line, unusable_lines
from ranker.light_model import LightModel
from ranker.terminal import Steps, plain, print_json, stdout, warn

if TYPE_CHECKING:
    from training.off_policy.targets import Target

REFUSED = 3
"""Exit status where the log cannot carry a number."""
UNIFORM, EMPIRICAL = "uniform", "empirical:"
SHOWN_SLICES = 24


def run(args: Namespace) -> int:
    """0 where a number could be shown, 3 where there is not enough overlap."""
    import msgspec

    from ranker.config import load_serve, load_train
    from ranker.propensity import Exploration
    from training.off_policy.gather import gather, read_view
    from training.off_policy.judge import JudgeConfig, judge

    if args.target is None:
        raise CommandError("--target is needed: uniform, a version of --models, or empirical:LOGDIR")
    serve, train = load_serve(args.config), load_train(args.train_config)
    exploration = Exploration(serve.epsilon, serve.temperature)
    started_s = time.monotonic()
    with Steps() as steps:
        target, until_s = _target(args, exploration)
        since_s = args.since if args.since is not None else until_s
        if since_s < until_s:
            warn(f"version {target.name} learned from {_since(until_s)}: some of what it is judged by")
        steps("labels")
        view = read_view(args.log, train.labels, train.outcomes)
        gathered = gather(args.log, target, exploration, lambda done: steps("slates", done), view, since_s)
        steps("estimates")
        whole, slices = judge(gathered, JudgeConfig(reward_model=args.reward_model))
    report = {
        "target": target.name,
        "log": str(args.log),
        "since": None if since_s == -math.inf else format_time(from_seconds(since_s)),
        **msgspec.to_builtins(whole),
        "slices": msgspec.to_builtins(slices),
        "reward_model": args.reward_model,
        "exploration": {"epsilon": serve.epsilon, "temperature": serve.temperature},
        "traffic": dict(gathered.used),
        "excluded_traffic": dict(gathered.excluded),
        "rejected": dict(gathered.rejected),
        "notes": gathered.notes,
        "schemas": dict(view.schemas),
        "orphan_feedback": view.labels.counts["orphan_feedback"],
        "unusable_lines": dict(view.problems.counts),
        "unusable_examples": [str(problem) for problem in view.problems.examples],
        "seconds": round(time.monotonic() - started_s, 3),
    }
    if args.json:
        print_json(report)
    else:
        show(report)
    return 0 if whole.enough else REFUSED


def show(report: Mapping[str, Any]) -> None:
    """The report for people."""
    console = stdout()
    lists = f", lists of up to {report['slots']}" if report["slots"] > 1 else ""
    size = f"{report['slates']:,} rankings of {report['users']:,} users{lists}, {report['arms']:,} actions shown"
    since = f" since {report['since']}" if report["since"] else ""
    console.print(plain(f"{report['target']} from {report['log']}{since}: {size}"))
    console.print(_overlap_table(report["overlap"]))
    for name, found in report["rewards"].items():
        console.print(_reward_table(name, found))
    for line in _not_shown_lines(report["rewards"]):
        console.print(line)
    for ratio, found in report["overlap"].items():
        for line in _refusal_lines(f"{ratio} ratios: {report['verdict']}", found["refusals"]):
            console.print(line)
    for name, found in report["rewards"].items():
        for line in _refusal_lines(name, [each for each in found["refusals"] if each["condition"] == "reward_varies"]):
            console.print(line)
    if report["slices"]:
        console.print(_slices_table(report["slices"]))
    console.print(counts_line("traffic", report["traffic"]))
    console.print(counts_line("excluded traffic", report["excluded_traffic"]))
    console.print(counts_line("rejected", report["rejected"]))
    for line in unusable_lines(report["unusable_lines"], report["unusable_examples"]):
        console.print(line)
    console.print(plain(f"{report['verdict']}; {report['seconds']:.1f} s"))


def _since(until_s: float) -> str:
    return f"what came before {format_time(from_seconds(until_s))}"


def _target(args: Namespace, exploration: Any) -> tuple[Target, float]:
    """The target, and where the data that it learned from ends: by what came later it is judged fairly."""
    from features.log import read_log
    from training.off_policy.targets import Uniform, Version, empirical_of

    name: str = args.target
    if name == UNIFORM:
        return Uniform(), -math.inf
    if name.startswith(EMPIRICAL):
        return empirical_of((event for _, event in read_log(Path(name.removeprefix(EMPIRICAL)))), name), -math.inf
    if args.models is None:
        raise CommandError(f"--target {name} is a version: --models is needed")
    model, until_s = _model(args, name)
    return Version(model, exploration, name), until_s


def _model(args: Namespace, version: str) -> tuple[LightModel, float]:
    from features.registry import FINGERPRINT
    from ranker.release.registry import Registry

    registry = Registry(args.models)
    manifest = registry.manifest(version)
    if manifest.schema != FINGERPRINT:
        raise CommandError(f"schema {manifest.schema} of version {version} is not this program's {FINGERPRINT}")
    until_s = until_s_of(manifest)
    model = LightModel.load(registry, version, manifest.schema, manifest.files)
    return model, -math.inf if until_s is None else until_s


def _overlap_table(overlap: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table("ratio", title="overlap", title_justify="left")
    for heading in ("mean weight", "± SE", "effective size", "largest weight", "its share", "enough"):
        table.add_column(heading, justify="right")
    for ratio, found in overlap.items():
        figures = (found["mean_weight"], found["mean_weight_se"], found["effective_sample_size"])
        more = (found["largest_weight"], found["largest_share"])
        table.add_row(plain(ratio), *map(_figure, (*figures, *more)), "no" if found["refusals"] else "yes")
    return table


def _reward_table(name: str, found: Mapping[str, Any]) -> Table:
    table = Table("estimator", title=plain(f"{name} per ranking, 95 % by user"), title_justify="left")
    for heading in ("value", "SE", "interval", "bootstrap"):
        table.add_column(heading, justify="right")
    rows = {"as logged": found["logged"], **found["estimates"]} if found["logged"] else found["estimates"]
    for estimator, shown in rows.items():
        bootstrap = shown["bootstrap"] or (None, None)
        interval, resampled = _interval(shown["low"], shown["high"]), _interval(*bootstrap)
        table.add_row(plain(estimator), _figure(shown["value"]), _figure(shown["se"]), interval, resampled)
    return table


def _slices_table(slices: Mapping[str, Mapping[str, Any]]) -> Table:
    largest = sorted(slices, key=lambda name: (-slices[name]["slates"], name))[:SHOWN_SLICES]
    left = len(slices) - len(largest)
    title = "usefulness by slice, SNIPS" + (f"; --json has {left} more" if left else "")
    table = Table("slice", title=title, title_justify="left")
    for heading in ("rankings", "effective size", "as logged", "value", "interval"):
        table.add_column(heading, justify="right")
    for name in sorted(largest):
        found = slices[name]
        reward = found["rewards"]["usefulness"]
        shown = reward["estimates"].get("snips")
        prefix = found["overlap"].get("prefix", {"effective_sample_size": None})
        value = (_figure(shown["value"]), _interval(shown["low"], shown["high"])) if shown else ("—", found["verdict"])
        logged = _figure(reward["logged"]["value"] if reward["logged"] else None)
        table.add_row(plain(name), f"{found['slates']:,}", _figure(prefix["effective_sample_size"]), logged, *value)
    return table


def _not_shown_lines(rewards: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Each reason once, with the estimators that it keeps back."""
    names: dict[str, list[str]] = {}
    for found in rewards.values():
        for estimator, why in found["not_shown"].items():
            kept = names.setdefault(why, [])
            kept += [estimator] if estimator not in kept else []
    return [plain(f"not shown: {', '.join(kept)}: {why}") for why, kept in names.items()]


def _refusal_lines(what: str, refusals: Any) -> list[str]:
    return [
        plain(f"{what}: {each['condition']} is {_figure(each['figure'])}, needed: {each['needed']}")
        for each in refusals
    ]


def _figure(value: float | None) -> str:
    return "—" if value is None else f"{value:,.5g}" if abs(value) < 1e5 else f"{value:,.0f}"


def _interval(low: float | None, high: float | None) -> str:
    return "—" if low is None or high is None else f"{_figure(low)} … {_figure(high)}"
