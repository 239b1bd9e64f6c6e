"""The options of what judges versions and keeps them."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from ranker.commands.options.last_item import add_evaluate_protocol
from ranker.commands.options.parsing import add_command, date, overrides, reports


def add_evaluate(commands: Any) -> None:
    """Adds `nextaction evaluate`."""
    text = (
        "Replay a log and judge popularity, Markov, a linear text model, the priors and the light ranker on what "
        "came at or after DATE. Judges the newest version, active or not, unless --version names one. A version that "
        "learned from the whole log leaves nothing to judge: hold the end back with "
        "`nextaction train light --until DATE`, then evaluate. With --off-policy: what a target would have been worth "
        "to the people of the log, from its propensities; exit status 3 where the log cannot carry a number."
    )
    evaluate = add_command(commands, "evaluate", text, "evaluate")
    evaluate.add_argument("--log", type=Path, required=True, metavar="LOGDIR")
    evaluate.add_argument(
        "--models", type=Path, metavar="MODELS", help="needed, but for --off-policy without a version"
    )
    date(evaluate, "--since", "judge from DATE on; default: where the version's data ends, or all")
    evaluate.add_argument("--hint", action="store_true", help="what users typed becomes the context's text")
    evaluate.add_argument("--version", metavar="V", help="default: the newest")
    _add_off_policy(evaluate)
    add_evaluate_protocol(evaluate)
    reports(evaluate)


def _add_off_policy(evaluate: ArgumentParser) -> None:
    group = evaluate.add_argument_group("off-policy")
    group.add_argument(
        "--off-policy", action="store_const", dest="module", const="off_policy", help="estimate a target"
    )
    group.add_argument("--target", metavar="TARGET", help="uniform, a version, or empirical:LOGDIR (what it showed)")
    group.add_argument("--config", type=Path, metavar="FILE", help="as configs/serve.yaml: epsilon and temperature")
    group.add_argument("--train-config", type=Path, metavar="FILE", help="as configs/train.yaml: gains and windows")
    group.add_argument("--reward-model", choices=("ridge", "trees"), default="ridge", help="of DM and DR")


def add_models(commands: Any) -> None:
    """Adds `nextaction models`."""
    tasks = add_command(commands, "models", "The registry of versions.", "models").add_subparsers(
        title="tasks", metavar="TASK", dest="task", required=True
    )
    for name, text, version in (
        ("list", "All versions.", None),
        ("show", "The manifest of a version; default: the active one, or else the newest.", "?"),
        ("activate", "Make a version the one that serves, if `nextaction gate` let it ship.", ""),
        ("verify", "Check the files of a version, or of all; fails and names what is wrong.", "?"),
    ):
        task = add_command(tasks, name, text)
        if version is not None:
            task.add_argument("version", metavar="VERSION", nargs=version or None)
        if name == "activate":
            overrides(task)
        task.add_argument("--models", type=Path, required=True, metavar="MODELS")
        reports(task)
