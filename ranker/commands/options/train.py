"""The options of `nextaction train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranker.commands.options.incremental import add_incremental
from ranker.commands.options.parsing import activates, add_command, date, reports, share
from ranker.commands.options.second import add_second


def add_train(commands: Any) -> None:
    """Adds `nextaction train`."""
    jobs = add_command(commands, "train", "Learn from a log or from labelled texts.", "train").add_subparsers(
        title="jobs", metavar="JOB", dest="job", required=True
    )
    text = (
        "Learn a version of the light ranker. The first version becomes active unless a gate on what --until held "
        "back stops it; later ones by `nextaction models activate` after `nextaction gate` has let them ship, or by "
        "--activate, which asks the gate at once (exit status 4 stop, 5 hold). To keep it fresh, a cron line: "
        '`7 3 * * * nextaction train light --log LOGDIR --models MODELS --since last --until "$(date -u -d yesterday '
        '+\\%F)" --checkpoint DIR --activate`: each run goes on from the newest version, where its data ended, and the '
        "gate judges it on the day held back; the first run learns from all before that. "
        "Going on saves time; learning anew without --since ranks better where it takes not too long."
    )
    light = add_command(jobs, "light", text)
    light.add_argument("--log", type=Path, required=True, metavar="LOGDIR")
    light.add_argument("--models", type=Path, required=True, metavar="MODELS")
    date(light, "--until", "learn from what happened before DATE only")
    add_incremental(light)
    hint = light.add_mutually_exclusive_group()
    hint.add_argument(
        "--hint", action="store_true", default=None,
        help="also learn a set with what users typed as the text; this is what happens where the log has it",
    )  # fmt: skip
    hint.add_argument("--no-hint", action="store_false", dest="hint", help="do not")
    activates(light)
    light.add_argument("--config", type=Path, metavar="FILE", help="as configs/train.yaml")
    reports(light)
    add_second(jobs)
    safety = add_command(jobs, "safety", "Learn the text scorer of the safety stage from labelled texts.")
    safety.add_argument("--labelled", type=Path, required=True, metavar="FILE", help='{"text": …, "unsafe": …} a line')
    safety.add_argument("--models", type=Path, metavar="MODELS", help="put it where the service finds it")
    safety.add_argument(
        "--alpha",
        type=share,
        default=0.005,
        metavar="SHARE",
        help="of unsafe texts that may pass (default %(default)s)",
    )
    safety.add_argument(
        "--allow-infeasible",
        action="store_true",
        help="put it there even if it can hold SHARE only by flagging everything",
    )
    reports(safety)
