"""`nextaction demo`: the whole in one go, in a folder that is gone afterwards unless one was named."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ranker.commands.errors import CommandError
from ranker.terminal import plain, print_json, stderr, stdout

if TYPE_CHECKING:
    from training.demo.service import ServiceProcess

SIMULATED = "simulated"


def run(args: Namespace) -> int:
    """Fails when any part of it failed."""
    from training.demo.plan import DemoPlan
    from training.demo.run import Demo

    if (args.log is None) != (args.format is None):
        raise CommandError("--log and --format belong together: the file, and what it is")
    with _ended_cleanly(), _folder(args.data) as folder:
        plan = DemoPlan(
            source=args.log,
            format=args.format or SIMULATED,
            folder=folder,
            seed=args.seed,
            users=args.users,
            days=args.days,
            interactions=args.interactions,
            shown=args.shown,
        )
        leave = (lambda service: _serve(service, args.json)) if args.serve else None
        report = Demo(plan, None if args.json else stdout(), leave).run()
    if args.json:
        print_json(report)
    return 0 if report["ok"] else 1


def _serve(service: ServiceProcess, quiet: bool) -> None:
    """Until Ctrl-C, which is how it is meant to end."""
    console = stderr() if quiet else stdout()
    url = service.started.url
    with contextlib.suppress(KeyboardInterrupt):
        console.print(plain(f"still serving at {url} until Ctrl-C:"))
        for page in ("/v1/rank", "/v1/actions", "/readyz", "/metrics", "/openapi.json"):
            console.print(plain(f"  {url}{page}"))
        while service.running:
            time.sleep(0.2)
        raise CommandError(f"the service ended by itself: {service.last_words()}")


@contextlib.contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data is None:
        with tempfile.TemporaryDirectory(prefix="nextaction-demo-") as folder:
            yield Path(folder)
        return
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise CommandError(f"--data {data} is not a new or empty folder")
    data.mkdir(parents=True, exist_ok=True)
    yield data


@contextlib.contextmanager
def _ended_cleanly() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP end the command as Ctrl-C does, through every `finally`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
