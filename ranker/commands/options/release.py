"""The options of what judges a version before anyone sees it."""

from __future__ import annotations

from argparse import ArgumentTypeError
from math import inf, isfinite
from pathlib import Path
from typing import Any

from ranker.commands.options.parsing import add_command, count, date, reports

IN_PROCESS = "in-process"


def speed(text: str) -> float:
    """Times real time; `max` does not wait."""
    if text == "max":
        return inf
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not isfinite(found) or found <= 0.0:
        raise ArgumentTypeError(f"{text!r} is neither a number above 0, times real time, nor max")
    return found


def add_gate(commands: Any) -> None:
    """Adds `nextaction gate`."""
    text = (
        "Say whether a version may ship. Candidate and baseline score the same decisions of a log in turns; rules of "
        "configs/gates.yaml judge quality and cost, every slice, completions against clicks, calibration, safety, "
        "memory and training data. The verdict is kept beside the version: `nextaction models activate` asks for it. "
        "Exit status 0 ship, 4 stop, 5 hold."
    )
    gate = add_command(commands, "gate", text, "gate")
    gate.add_argument("--candidate", required=True, metavar="V", help="the version that is to ship")
    gate.add_argument("--baseline", metavar="V|priors", help="default: what is active, or the priors where nothing is")
    gate.add_argument("--log", type=Path, required=True, metavar="LOGDIR")
    gate.add_argument("--models", type=Path, default=Path("nextaction-data/models"), metavar="MODELS")
    date(gate, "--since", "judge from DATE on; default: where the candidate's data ends")
    gate.add_argument("--limit", type=count, metavar="N", help="judge the first N decisions only")
    gate.add_argument("--safety-labelled", type=Path, metavar="FILE", help="texts that the scorer did not learn from")
    gate.add_argument("--config", type=Path, metavar="FILE", help="as configs/gates.yaml")
    gate.add_argument("--serve-config", type=Path, metavar="FILE", help="as configs/serve.yaml: epsilon, temperature")
    gate.add_argument("--no-off-policy", action="store_false", dest="off_policy", help="outcomes by labels alone")
    reports(gate)


def add_replay(commands: Any) -> None:
    """Adds `nextaction replay`."""
    text = (
        "Play a log's rankings against a version in their order of time, and compare with what was logged: overlap, "
        "rank correlation, drift of scores and features, latency, degraded share, off-policy value; by traffic and "
        "slice. Nothing changes in the log or the service; what was answered may be kept in a log of its own."
    )
    replay = add_command(commands, "replay", text, "replay")
    replay.add_argument("--log", type=Path, required=True, metavar="LOGDIR")
    replay.add_argument("--models", type=Path, required=True, metavar="MODELS")
    replay.add_argument("--version", metavar="V", help="default: the active one, or else the newest")
    replay.add_argument(
        "--url", required=True, metavar=f"URL|{IN_PROCESS}", help="a running service, or this very process"
    )
    replay.add_argument(
        "--speed", type=speed, default=inf, metavar="X|max", help="times real time (default max: without waiting)"
    )
    replay.add_argument("--to", type=Path, metavar="OUT", help="keep the answers here as traffic `replay`")
    date(replay, "--since", "play from DATE on; what came before is still known")
    replay.add_argument("--limit", type=count, metavar="N", help="play the first N rankings only")
    replay.add_argument("--budget-ms", type=count, default=100, metavar="MS", help="deadline of each (default 100)")
    replay.add_argument("--serve-config", type=Path, metavar="FILE", help="as configs/serve.yaml: epsilon, temperature")
    reports(replay)
