"""`nextaction …`: the tree of commands, and what becomes of their errors.

Each command is a module of ranker.commands that is imported when it is called, so that `--help` needs
nothing but argparse.
"""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from importlib import import_module, metadata
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from ranker.commands.dates import date_s
from ranker.commands.errors import CommandError
from ranker.commands.plan_options import TEXT as PLAN_TEXT
from ranker.commands.plan_options import add_options as add_plan_options

FORMATS = ("star", "sequences", "jsonl")
FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141

EXPECTED = {
    "features.errors": "FeatureError",
    "ranker.errors": "RankerError",
    "ranker.inference.memory_errors": "PlannedMemoryError",
    "ranker.release.errors": "RegistryError",
    "ranker.safety_text": "TextScorerError",
    "training.errors": "TrainingError",
    "training.safety_labels": "LabelError",
}
"""Roots of the errors that are raised on purpose, by module: any other is a bug and keeps its traceback."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    _never_fail_to_print()
    args = parser().parse_args(argv)
    try:
        status = _run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _silenced()
    except Exception as error:
        if not isinstance(error, _expected()):
            raise
        print(f"nextaction: error: {_one_line(error)}", file=sys.stderr, flush=True)
        return FAILED
    return status


def _run(args: Namespace) -> int:
    status: int = import_module(f"ranker.commands.{args.module}").run(args)
    return status


def _expected() -> tuple[type[Exception], ...]:
    """What was raised was imported by its raiser: nothing is imported to find out."""
    known = [getattr(sys.modules[module], name) for module, name in EXPECTED.items() if module in sys.modules]
    return (CommandError, OSError, *known)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _never_fail_to_print() -> None:
    """A terminal that has no `…` gets a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _silenced() -> int:
    """Whoever read us is gone: say nothing more, not even at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def parser() -> ArgumentParser:
    """The whole tree."""
    root = ArgumentParser("nextaction", description="Ranks the next actions an app should offer.")
    root.add_argument("--version", action="version", version=f"nextaction {_version()}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_demo, _serve, _import, _validate, _rebuild, _train, _evaluate, _models, _plan, _profile, _bench):
        add(commands)
    return root


def _version() -> str:
    try:
        return metadata.version("nextaction")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _demo(commands: Any) -> None:
    demo = _add(commands, "demo", "Show the whole in one go: build a log, learn, serve, play, judge.", "demo")
    demo.add_argument("--log", type=Path, metavar="PATH", help="play this source instead of the simulated assistant")
    demo.add_argument("--format", choices=FORMATS, help="what PATH is")
    demo.add_argument("--serve", action="store_true", help="leave the service running until Ctrl-C")
    demo.add_argument("--data", type=Path, metavar="DIR", help="keep log and models here, not in a temporary folder")
    demo.add_argument("--seed", type=int, default=1, help="of the simulated assistant (default 1)")
    for name, default in (("--users", 225), ("--days", 14), ("--interactions", 400), ("--shown", 4)):
        demo.add_argument(name, type=_count, default=default, help=SUPPRESS)
    _reports(demo)


def _serve(commands: Any) -> None:
    serve = _add(commands, "serve", "Run the service. Without options everything lies in ./nextaction-data.", "serve")
    serve.add_argument("--config", type=Path, metavar="FILE", help="as configs/serve.yaml; options go before it")
    serve.add_argument("--policy", type=Path, metavar="FILE", help="as configs/policy.yaml")
    serve.add_argument("--host", help="address to bind; loopback unless told otherwise")
    serve.add_argument("--port", type=int, help="0 takes a free one")
    serve.add_argument("--log", type=Path, metavar="LOGDIR", help="the canonical log; made where there is none")
    serve.add_argument("--models", type=Path, metavar="MODELS", help="the registry; priors rank where it is empty")
    serve.add_argument("--store", metavar="URL", help="redis://, rediss:// or unix://; default: an embedded server")
    serve.add_argument("--actions", type=Path, metavar="FILE", help="catalogue for a log that has none")
    serve.add_argument("--until-stdin-ends", action="store_true", help=SUPPRESS)
    serve.add_argument("--bench", action="store_true", help=SUPPRESS)
    _reports(serve, "one JSON line on stdout once it is ready")


def _import(commands: Any) -> None:
    importing = _add(commands, "import", "Turn foreign records into a new log.", "importing")
    importing.add_argument("--format", choices=FORMATS, required=True, help="what SRC is")
    importing.add_argument("source", type=Path, metavar="SRC", help="a file, plain or gzip; jsonl takes a folder too")
    importing.add_argument("--to", type=Path, required=True, metavar="LOGDIR", help="must not exist, or be empty")
    _reports(importing)


def _validate(commands: Any) -> None:
    validate = _add(
        commands, "validate", "Count and name what is wrong with a log; fails if there are errors.", "validate"
    )
    validate.add_argument("log", type=Path, metavar="LOGDIR")
    _reports(validate)


def _rebuild(commands: Any) -> None:
    text = (
        "Fill a store's online state from a log. Without --store the state goes into an embedded store that ends "
        "with this command: a check that the log can be rebuilt. (A service rebuilds its own embedded store.)"
    )
    rebuild = _add(commands, "rebuild", text, "rebuild")
    rebuild.add_argument("--log", type=Path, required=True, metavar="LOGDIR")
    rebuild.add_argument("--store", metavar="URL", help="redis://, rediss:// or unix://")
    _reports(rebuild)


def _train(commands: Any) -> None:
    jobs = _add(commands, "train", "Learn from a log or from labelled texts.", "train").add_subparsers(
        title="jobs", metavar="JOB", dest="job", required=True
    )
    text = (
        "Learn a version of the light ranker. The first version becomes active; later ones are activated by "
        "`nextaction models activate`, after `nextaction evaluate` has judged them, or by --activate."
    )
    light = _add(jobs, "light", text)
    light.add_argument("--log", type=Path, required=True, metavar="LOGDIR")
    light.add_argument("--models", type=Path, required=True, metavar="MODELS")
    _date(light, "--until", "learn from what happened before DATE only")
    hint = light.add_mutually_exclusive_group()
    hint.add_argument(
        "--hint", action="store_true", default=None,
        help="also learn a set with what users typed as the text; this is what happens where the log has it",
    )  # fmt: skip
    hint.add_argument("--no-hint", action="store_false", dest="hint", help="do not")
    light.add_argument("--activate", action="store_true", help="make it the active version")
    light.add_argument("--config", type=Path, metavar="FILE", help="as configs/train.yaml")
    _reports(light)
    safety = _add(jobs, "safety", "Learn the text scorer of the safety stage from labelled texts.")
    safety.add_argument("--labelled", type=Path, required=True, metavar="FILE", help='{"text": …, "unsafe": …} a line')
    safety.add_argument("--models", type=Path, metavar="MODELS", help="put it where the service finds it")
    safety.add_argument(
        "--alpha",
        type=_share,
        default=0.005,
        metavar="SHARE",
        help="of unsafe texts that may pass (default %(default)s)",
    )
    safety.add_argument(
        "--allow-infeasible",
        action="store_true",
        help="put it there even if it can hold SHARE only by flagging everything",
    )
    _reports(safety)


def _evaluate(commands: Any) -> None:
    text = (
        "Replay a log and judge popularity, Markov, a linear text model, the priors and the light ranker on what "
        "came at or after DATE. Judges the newest version, active or not, unless --version names one. A version that "
        "learned from the whole log leaves nothing to judge: hold the end back with "
        "`nextaction train light --until DATE`, then evaluate."
    )
    evaluate = _add(commands, "evaluate", text, "evaluate")
    evaluate.add_argument("--log", type=Path, required=True, metavar="LOGDIR")
    evaluate.add_argument("--models", type=Path, required=True, metavar="MODELS")
    _date(evaluate, "--since", "judge from DATE on; default: where the version's data ends")
    evaluate.add_argument("--hint", action="store_true", help="what users typed becomes the context's text")
    evaluate.add_argument("--version", metavar="V", help="default: the newest")
    _reports(evaluate)


def _models(commands: Any) -> None:
    tasks = _add(commands, "models", "The registry of versions.", "models").add_subparsers(
        title="tasks", metavar="TASK", dest="task", required=True
    )
    for name, text, version in (
        ("list", "All versions.", None),
        ("show", "The manifest of a version; default: the active one, or else the newest.", "?"),
        ("activate", "Make a version the one that serves.", ""),
        ("verify", "Check the files of a version, or of all; fails and names what is wrong.", "?"),
    ):
        task = _add(tasks, name, text)
        if version is not None:
            task.add_argument("version", metavar="VERSION", nargs=version or None)
        task.add_argument("--models", type=Path, required=True, metavar="MODELS")
        _reports(task)


def _plan(commands: Any) -> None:
    plan = _add(commands, "plan", PLAN_TEXT, "plan")
    add_plan_options(plan)
    _reports(plan)


def _profile(commands: Any) -> None:
    text = (
        "Where the memory of a running service is: pools, pages, fragmentation, hot spots of the last seconds. "
        "With --workload, of batches that this command itself runs through a pool, without a service."
    )
    profile = _add(commands, "profile", text, "profile")
    profile.add_argument("--url", default="http://127.0.0.1:8080", help="of the service (default %(default)s)")
    profile.add_argument(
        "--seconds", metavar="S", default="60", help="hot spots of the last S, at most 300 (default 60)"
    )
    profile.add_argument("--workload", action="store_true", help="run batches of changing shapes here instead")
    profile.add_argument("--batches", type=_count, default=500, help="of the workload (default 500)")
    profile.add_argument("--seed", type=int, default=1, help="of the workload (default 1)")
    _reports(profile)


def _bench(commands: Any) -> None:
    benches = _add(commands, "bench", "Measure speed on this machine.").add_subparsers(
        title="benches", metavar="BENCH", required=True
    )
    text = "The inference engine against the least that a batching server can do, in one run."
    core = _add(benches, "core", text, "bench_core")
    core.add_argument("--rounds", type=_count, default=5, help="of each figure, in turns (default 5)")
    core.add_argument("--seconds", type=_count, default=4, help="of load in each round (default 4)")
    _reports(core)
    text = "The service beside an echo of the same server: CPU, latency, overload and growth, in one run."
    serve = _add(benches, "serve", text, "bench_serve")
    serve.add_argument("--data", type=Path, default=Path("nextaction-data/bench"), metavar="DIR", help="log and model")
    serve.add_argument("--quick", action="store_true", help="about two minutes: smaller, shorter, coarser")
    serve.add_argument("--soak", type=_count, metavar="N", help="instead: resident memory over N requests of N users")
    serve.add_argument("--settings", action="store_true", help="instead: what each setting of the process is worth")
    serve.add_argument("--plot", type=Path, metavar="FILE", help="growth as an SVG")
    _reports(serve)
    text = "One MGET of packed rows against a read per field, on an embedded store."
    features = _add(benches, "features", text, "bench_features")
    features.add_argument("--rows", type=_count, default=51, help="read at once (default 51)")
    features.add_argument("--rounds", type=_count, default=9, help="of each way, in turns (default 9)")
    _reports(features)


def _add(commands: Any, name: str, text: str, module: str | None = None) -> ArgumentParser:
    added: ArgumentParser = commands.add_parser(name, help=text.split(". ")[0].rstrip("."), description=text)
    if module is not None:
        added.set_defaults(module=module)
    return added


def _reports(command: ArgumentParser, text: str = "print the report as JSON, alone on stdout") -> None:
    command.add_argument("--json", action="store_true", help=text)


def _date(command: ArgumentParser, name: str, text: str) -> None:
    text += "; 2020-05-24, or ISO 8601, UTC where it names no zone"
    command.add_argument(name, type=date_s, metavar="DATE", help=text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= 1_000_000):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000000")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share < 1.0:
        raise ArgumentTypeError(f"{text!r} is not a share between 0 and 1")
    return share


if __name__ == "__main__":
    sys.exit(main())
