"""`nextaction serve`: the service, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from features.catalogue import ActionSpec
from ranker.commands.errors import CommandError
from ranker.config import EMBEDDED, ServeConfig, config_dir, load_actions, load_policy
from ranker.config_file import build as checked
from ranker.config_file import read_yaml
from ranker.policy_config import PolicyConfig
from ranker.terminal import plain, stdout

if TYPE_CHECKING:
    from ranker.answers import Service, Workers
    from ranker.build import Running
    from ranker.server import ASGIApp

PAGES = ("/v1/rank", "/v1/events", "/v1/actions", "/readyz", "/metrics", "/openapi.json")
REBIND_S = 3.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def run(args: Namespace) -> int:
    """Serves until SIGTERM or Ctrl-C, which is a success."""
    config, policy = config_of(args), load_policy(args.policy)
    limit_threads(config.threads)
    from ranker.server import run_on_uvloop

    actions = load_actions(args.actions) if args.actions is not None else {}
    log_to_stderr()
    with contextlib.closing(_listen(config)) as listener:
        run_on_uvloop(_serve(args, config, policy, actions, listener))
    return 0


def log_to_stderr() -> None:
    """What happens, a line each."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # we say ourselves that it runs


def limit_threads(threads: int) -> None:
    """For numpy, scipy and LightGBM, which read it when they are imported; what the user has set stays."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))


def config_of(args: Namespace) -> ServeConfig:
    """The file's settings with the options before them.

    Raises:
        ConfigError: naming the file, or the command line, with field and value.
    """
    path = args.config or config_dir() / "serve.yaml"
    tree = read_yaml(path)
    config = checked(path, tree, ServeConfig)
    options: Mapping[str, Any] = {
        "host": args.host,
        "port": args.port,
        "store": args.store,
        "workers": args.workers,
        "log_dir": None if args.log is None else str(args.log),
        "models_dir": None if args.models is None else str(args.models),
    }
    given = {name: value for name, value in options.items() if value is not None}
    if args.config is None or "secret_file" not in tree:
        given["secret_file"] = _beside(args.log or Path(config.log_dir))
    return checked(Path("command line"), {**msgspec.to_builtins(config), **given}, ServeConfig)


def _beside(log: Path) -> str:
    """The secret's place where no file names one: another start with this log, from anywhere, must find the same."""
    return str(Path(os.path.abspath(log)).parent / "secret")  # noqa: PTH100  # `..` goes, links stay


def _listen(config: ServeConfig) -> socket.socket:
    from ranker.server import listen

    # Should the one before have been killed, its other workers leave the address a moment after it.
    give_up_s = time.monotonic() + (REBIND_S if config.workers > 1 else 0.0)
    while True:
        try:
            return listen(config.host, config.port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= give_up_s:
                text = f"{config.host}:{config.port} cannot be bound: {error.strerror or error}"
                raise CommandError(text) from error
            time.sleep(0.05)


async def _serve(
    args: Namespace,
    config: ServeConfig,
    policy: PolicyConfig,
    actions: Mapping[str, ActionSpec],
    listener: socket.socket,
) -> None:
    from ranker.build import Surroundings, build
    from ranker.server import stopped_by_signals

    stop = asyncio.Event()
    around = Surroundings(actions=actions)
    with stopped_by_signals(stop):
        if args.until_stdin_ends:
            stop_at_the_end_of_stdin(stop)
        running = await build(config, policy, around)
        try:
            if config.workers == 1:
                await _serve_alone(args, running, policy, listener, stop)
            else:
                await _serve_with_others(args, running, policy, listener, stop)
        finally:
            await running.close()


async def _serve_alone(
    args: Namespace, running: Running, policy: PolicyConfig, listener: socket.socket, stop: asyncio.Event
) -> None:
    from ranker.server import serve

    app = _application(args, running, policy, running.service, None)
    await serve(app, listener, stop, on_started=lambda url: _announce(args, running, url))


async def _serve_with_others(
    args: Namespace, running: Running, policy: PolicyConfig, listener: socket.socket, stop: asyncio.Event
) -> None:
    from ranker.api.follower import named
    from ranker.server import serve
    from ranker.workers.opening import open_keeper

    async with open_keeper(running, policy, listener) as keeper:
        app = _application(args, running, policy, keeper.service, keeper.service)
        await keeper.start(app)
        await keeper.joined(stop)
        ending = asyncio.create_task(keeper.end_with(stop))
        try:
            await serve(named(app, 0), listener, stop, on_started=lambda url: _announce(args, running, url))
        finally:
            stop.set()
            await ending


def _application(
    args: Namespace, running: Running, policy: PolicyConfig, service: Service, workers: Workers | None
) -> ASGIApp:
    from ranker.admission import Admission
    from ranker.api.app import create_app
    from ranker.api.bench import add_bench_routes
    from ranker.api.limits import Limits

    config, clock = running.config, running.service.ranking.clock
    limits = Limits(rank_bytes=config.max_body_bytes)
    admission, classes = Admission(clock, config.budgets_ms.by_priority()), policy.safety_classes
    app = create_app(
        service, limits, clock, admission=admission, memory=running.memory, classes=classes, workers=workers
    )
    if args.bench:
        add_bench_routes(app, service, limits, clock)
    return app


def _announce(args: Namespace, running: Running, url: str) -> None:
    service, config = running.service, running.config
    models = service.models()
    missing = service.not_ready()
    found = {
        "url": url,
        "ready": not missing,
        "missing": missing,
        "light": models["serving"],
        "versions": len(models["versions"]),
        "actions": len(service.actions()),
        "log": config.log_dir,
        "models": config.models_dir,
        "workers": config.workers,
        "store": EMBEDDED if config.store == EMBEDDED else "external",
    }
    if args.json:
        print(msgspec.json.encode(found).decode(), flush=True)
        return
    console = stdout()
    console.print(plain(f"serving at {url}"))
    for page in PAGES:
        console.print(plain(f"  {url}{page}"))
    light = f"version {found['light']}" if found["light"] is not None else "none active, priors rank"
    console.print(plain(f"light: {light}; {found['actions']} actions; log {config.log_dir}; store {found['store']}"))
    for part, reason in missing.items():
        console.print(plain(f"not ready: {part} {reason}"))


def stop_at_the_end_of_stdin(stop: asyncio.Event) -> None:
    """Whoever started us holds the other end, so we end with him however he ends."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        # os.read: a buffered reader that waits would be waited for at exit
        while os.read(0, 4096):
            pass
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait, name="stdin", daemon=True).start()
