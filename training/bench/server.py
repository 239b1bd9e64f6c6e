"""The measured service and the load on it, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from training.bench.load import Order, Report
from training.bench.material import Material
from training.demo.service import service_process
from training.errors import TrainingError

_LOAD = "import sys; sys.path.append({root!r}); from training.bench.load import main; main()"
CHUNK_LINES = 2000
APPLY_S = 300.0


class Usage(msgspec.Struct, frozen=True):
    """What the service has used since it started."""

    cpu_s: float
    rss_bytes: int
    collections: list[int]
    log_end: int
    applied: int


class Server:
    """A running service in bench mode."""

    def __init__(self, url: str, folder: Path, material: Material) -> None:
        self.material = material
        self._client = httpx.Client(base_url=url, timeout=300.0)
        self._port = urlsplit(url).port or 0
        self._folder = folder
        self._files = 0

    def usage(self) -> Usage:
        """Now."""
        return msgspec.json.decode(self._client.get("/usage").content, type=Usage)

    def get(self, path: str) -> Any:
        """The JSON of a GET."""
        return self._client.get(path).json()

    def write(self, bodies: Iterable[bytes]) -> Path:
        """A file of bodies for `load`."""
        self._files += 1
        path = self._folder / f"bodies-{self._files}.jsonl"
        path.write_bytes(b"\n".join(bodies))
        return path

    def load(self, bodies: Path, path: str = "/v1/rank", **order: Any) -> Report:
        """Runs a load against the service to its end."""
        return run_load(Order(port=self._port, path=path, bodies=str(bodies), **order))

    def put_catalogue(self, actions: Mapping[str, Any]) -> None:
        """Replaces the catalogue, and waits until all have it."""
        lines = (json.dumps({"action": name, **msgspec.to_builtins(spec)}) for name, spec in actions.items())
        self._checked("PUT", "/v1/actions", lines)
        self.wait_applied()

    def post_events(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Posts events, and waits until they are in effect."""
        chunk: list[str] = []
        for event in events:
            chunk.append(json.dumps(event))
            if len(chunk) == CHUNK_LINES:
                self._checked("POST", "/v1/events", chunk)
                chunk = []
        if chunk:
            self._checked("POST", "/v1/events", chunk)
        self.wait_applied()

    def wait_applied(self) -> None:
        """Returns once the whole log is in effect.

        Raises:
            TrainingError: it takes too long.
        """
        give_up_s = time.monotonic() + APPLY_S
        while (usage := self.usage()).applied < usage.log_end:
            if time.monotonic() > give_up_s:
                raise TrainingError(f"{usage.applied} of {usage.log_end} events are applied after {APPLY_S:g} s")
            time.sleep(0.05)

    def close(self) -> None:
        """Ends the control connection."""
        self._client.close()

    def _checked(self, method: str, path: str, lines: Iterable[str]) -> None:
        headers = {"content-type": "application/x-ndjson"}
        answer = self._client.request(method, path, content="\n".join(lines).encode(), headers=headers)
        if answer.status_code != 200:
            raise TrainingError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")


@contextlib.contextmanager
def bench_server(
    material: Material, environment: Mapping[str, str] | None = None, options: Iterable[str] = ()
) -> Iterator[Server]:
    """Starts a service on a copy of the log: what is measured must not change what the next run starts from."""
    with tempfile.TemporaryDirectory(prefix="nextaction-bench-") as name:
        folder = Path(name)
        shutil.copytree(material.log, folder / "log")
        with service_process(folder / "log", material.models, ["--bench", *options], environment) as process:
            server = Server(process.started.url, folder, material)
            try:
                server.wait_applied()
                yield server
            finally:
                server.close()


def run_load(order: Order) -> Report:
    """Runs the load in a process of its own.

    Raises:
        TrainingError: it failed.
    """
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-P", "-c", _LOAD.format(root=root)]
    done = subprocess.run(
        command, input=json.dumps(vars(order)).encode(), capture_output=True, timeout=order.seconds + 120.0
    )
    if done.returncode:
        raise TrainingError(f"the load failed: {done.stderr.decode(errors='replace')[-600:]}")
    return Report(**json.loads(done.stdout))
