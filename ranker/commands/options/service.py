"""The options of what runs or looks at the service."""

from __future__ import annotations

from argparse import SUPPRESS
from pathlib import Path
from typing import Any

from ranker.commands.options.logs import FORMATS
from ranker.commands.options.parsing import add_command, count, reports


def add_demo(commands: Any) -> None:
    """Adds `nextaction demo`."""
    demo = add_command(commands, "demo", "Show the whole in one go: build a log, learn, serve, play, judge.", "demo")
    demo.add_argument("--log", type=Path, metavar="PATH", help="play this source instead of the simulated assistant")
    demo.add_argument("--format", choices=FORMATS, help="what PATH is")
    demo.add_argument("--serve", action="store_true", help="leave the service running until Ctrl-C")
    demo.add_argument("--data", type=Path, metavar="DIR", help="keep log and models here, not in a temporary folder")
    demo.add_argument("--seed", type=int, default=1, help="of the simulated assistant (default 1)")
    for name, default in (("--users", 225), ("--days", 14), ("--interactions", 400), ("--shown", 4)):
        demo.add_argument(name, type=count, default=default, help=SUPPRESS)
    reports(demo)


def add_serve(commands: Any) -> None:
    """Adds `nextaction serve`."""
    serve = add_command(
        commands, "serve", "Run the service. Without options everything lies in ./nextaction-data.", "serve"
    )
    serve.add_argument("--config", type=Path, metavar="FILE", help="as configs/serve.yaml; options go before it")
    serve.add_argument("--policy", type=Path, metavar="FILE", help="as configs/policy.yaml")
    serve.add_argument("--host", help="address to bind; loopback unless told otherwise")
    serve.add_argument("--port", type=int, help="0 takes a free one")
    serve.add_argument("--log", type=Path, metavar="LOGDIR", help="the canonical log; made where there is none")
    serve.add_argument("--models", type=Path, metavar="MODELS", help="the registry; priors rank where it is empty")
    serve.add_argument("--store", metavar="URL", help="redis://, rediss:// or unix://; default: an embedded server")
    serve.add_argument("--actions", type=Path, metavar="FILE", help="catalogue for a log that has none")
    serve.add_argument("--workers", type=count, metavar="N", help="processes that answer (default 1)")
    serve.add_argument("--until-stdin-ends", action="store_true", help=SUPPRESS)
    serve.add_argument("--bench", action="store_true", help=SUPPRESS)
    reports(serve, "one JSON line on stdout once it is ready")


def add_profile(commands: Any) -> None:
    """Adds `nextaction profile`."""
    text = (
        "Where the memory of a running service is: pools, pages, fragmentation, hot spots of the last seconds. "
        "With --workload, of batches that this command itself runs through a pool, without a service."
    )
    profile = add_command(commands, "profile", text, "profile")
    profile.add_argument("--url", default="http://127.0.0.1:8080", help="of the service (default %(default)s)")
    profile.add_argument(
        "--seconds", metavar="S", default="60", help="hot spots of the last S, at most 300 (default 60)"
    )
    profile.add_argument("--workload", action="store_true", help="run batches of changing shapes here instead")
    profile.add_argument("--batches", type=count, default=500, help="of the workload (default 500)")
    profile.add_argument("--seed", type=int, default=1, help="of the workload (default 1)")
    reports(profile)
