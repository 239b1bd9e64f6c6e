"""`nextaction serve` with several workers, in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from features.events import format_time, from_seconds
from ranker.clock import SystemClock
from tests.command_line import ROOT

LAG_LIMIT_MS = 1500.0
ACTIONS: dict[str, dict[str, Any]] = {
    "share": {},
    "learn": {},
    "loan": {"safety_class": "sensitive"},
    "bet": {"safety_class": "sensitive"},
    "offer": {"consent": "ads"},
}


def now() -> str:
    """As an event's time."""
    return format_time(from_seconds(SystemClock().now_s()))


@dataclass
class Worker:
    """A connection that one worker has accepted."""

    number: int
    http: httpx.AsyncClient

    async def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """An answer of this very worker."""
        reply = await self.http.request(method, path, json=body)
        assert int(reply.headers["x-worker"]) == self.number, "the connection was lost in between"
        return reply

    async def rank(self, *candidates: str, **fields: Any) -> dict[str, Any]:
        """An answer, its items by name in `offered`."""
        asked = {"candidates": [{"action": action} for action in candidates]} if candidates else {}
        body = {"user": "u1", "context": {"surface": "chat"}, "k": 5, "budget_ms": 5000, **asked, **fields}
        reply = await self.ask("POST", "/v1/rank", body)
        assert reply.status_code == 200, reply.text
        answer: dict[str, Any] = reply.json()
        return {**answer, "offered": [item["action"] for item in answer["items"]]}

    async def post(self, **fields: Any) -> None:
        """An event that is acknowledged."""
        reply = await self.ask("POST", "/v1/events", {"id": os.urandom(8).hex(), "time": now(), "user": "u1", **fields})
        assert [result["status"] for result in reply.json()["results"]] == ["accepted"], reply.text

    async def put(self, action: str, **fields: Any) -> None:
        """An entry of the catalogue."""
        reply = await self.ask("PUT", f"/v1/actions/{action}", {**ACTIONS[action], **fields})
        assert reply.status_code == 200, reply.text


@dataclass
class Several:
    """A running service."""

    child: subprocess.Popen[bytes]
    url: str
    folder: Path

    def pids(self) -> dict[int, int]:
        """Process ids of the followers, by worker."""
        return followers_of(self.child.pid)

    @asynccontextmanager
    async def workers(self, *wanted: int) -> Any:
        """A connection to each of these workers."""
        async with AsyncExitStack() as stack:
            yield [await self._connected(number, stack) for number in wanted]

    async def _connected(self, number: int, stack: AsyncExitStack) -> Worker:
        """Asks for connections until that worker has accepted one."""
        async with asyncio.timeout(20.0), AsyncExitStack() as others:
            while True:
                # Kept open while others are looked for: a new one may be accepted by another worker.
                one = httpx.Limits(max_connections=1, keepalive_expiry=None)
                http = httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=20.0, limits=one)
                found = await http.get("/healthz")
                if int(found.headers["x-worker"]) == number:
                    stack.push_async_callback(http.aclose)
                    return Worker(number, http)
                others.push_async_callback(http.aclose)  # stays open meanwhile: who has fewer accepts sooner

    def lines(self) -> list[dict[str, Any]]:
        """All lines of the log."""
        segments = sorted((self.folder / "log" / "partition-0").glob("*.jsonl"))
        return [json.loads(line) for path in segments for line in path.read_bytes().splitlines()]


def followers_of(pid: int) -> dict[int, int]:
    """Process ids of a keeper's followers, by worker."""
    found: dict[int, int] = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        if any(b"member" in word or b"commands.worker" in word for word in words):
            found[int(words[-2])] = int(child)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs: one that has ended but was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def several(folder: Path, workers: int) -> Iterator[Several]:
    """Serves until it is left."""
    (folder / "actions.yaml").write_text(json.dumps(ACTIONS))
    (folder / "serve.yaml").write_text(f"catalogue_lag_limit_ms: {LAG_LIMIT_MS}\nstore_timeout_ms: 500.0\n")
    names = {"--log": "log", "--models": "models", "--actions": "actions.yaml", "--config": "serve.yaml"}
    places = [word for option, name in names.items() for word in (option, str(folder / name))]
    command = [sys.executable, "-m", "ranker.cli", "serve", "--json", "--port", "0", "--workers", str(workers)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        (folder / "stderr").open("wb") as printed,
        subprocess.Popen(
            [*command, *places], stdout=subprocess.PIPE, stderr=printed, cwd=ROOT, env=environment
        ) as child,
    ):
        try:
            assert child.stdout is not None
            announced = child.stdout.readline()
            assert announced, (folder / "stderr").read_text()
            yield Several(child, json.loads(announced)["url"], folder)
        finally:
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(15)
                except subprocess.TimeoutExpired:
                    child.kill()
