"""A real service in a process of its own, people who keep sending to it, and a killer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from features.events import format_time, from_seconds
from ranker.clock import SystemClock
from tests.command_line import ROOT
from tests.features.test_embedded_store import server_pid

ACTIONS = ("share", "remind", "crop", "learn")
USERS = 4
CATALOGUE = "\n".join(f"{name}: {{}}" for name in ACTIONS)


@dataclass
class Service:
    """`nextaction serve` as a child, started again after it was killed.

    Args:
        folder: for its log, models and secret.
        sockets: for its embedded store; a short path.
        store: as in the config.
    """

    folder: Path
    sockets: Path
    store: str = "embedded"
    url: str = ""
    child: asyncio.subprocess.Process | None = None

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def printed(self) -> Path:
        """What the child says on stderr."""
        return self.folder / "stderr"

    async def start(self) -> None:
        """Returns once it serves; one that found no store in time is started again, as whoever runs it would."""
        announced = b""
        while not announced:
            child = await self.spawn()
            assert child.stdout is not None
            announced = await child.stdout.readline()
            if not announced:
                await child.wait()
                assert b"cannot be reached" in self.printed.read_bytes().splitlines()[-1], "not because of its store"
        self.url = json.loads(announced)["url"]

    async def spawn(self) -> asyncio.subprocess.Process:
        """Returns while it is starting."""
        places = ["--log", self.log, "--models", self.folder / "models", "--actions", self.folder / "actions.yaml"]
        (self.folder / "actions.yaml").write_text(CATALOGUE)
        with self.printed.open("wb") as printed:
            self.child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ranker.cli", "serve", "--json", "--port", "0", "--store", self.store,
                *map(str, places), stdout=asyncio.subprocess.PIPE, stderr=printed, cwd=ROOT,
                env={**os.environ, "TMPDIR": str(self.sockets)},
            )  # fmt: skip
        return self.child

    async def kill(self) -> None:
        """As `kill -9` does."""
        assert self.child is not None
        self.url = ""
        if self.child.returncode is None:
            self.child.kill()
        await self.child.communicate()

    def room(self, more_bytes: int | None) -> None:
        """Lets no file grow by more than this beyond the log's last segment, as a full disk does; None: as it likes."""
        assert self.child is not None
        _, hard = resource.prlimit(self.child.pid, resource.RLIMIT_FSIZE)
        size = max((self.log / "partition-0").glob("*.jsonl")).stat().st_size
        soft = hard if more_bytes is None else size + more_bytes
        resource.prlimit(self.child.pid, resource.RLIMIT_FSIZE, (soft, hard))

    def socket(self) -> Path:
        """Where the embedded store that runs now listens."""
        found = self.sockets.glob("na-*/s")
        return max(found, key=lambda path: path.stat().st_mtime_ns)


def kill_store(socket: Path) -> None:
    """As `kill -9` does; nothing when it is down already."""
    with contextlib.suppress(OSError, StopIteration):
        os.kill(server_pid(socket), signal.SIGKILL)


@dataclass
class Sent:
    """What was said to whom.

    Args:
        acknowledged: ids of events that were accepted, or said to be known.
        abandoned: ids of events that were never answered, and not sent again.
        refused: how many posts were answered with 503.
        rankings: ids of rankings that were answered as logged.
    """

    acknowledged: set[str] = field(default_factory=set)
    abandoned: set[str] = field(default_factory=set)
    refused: int = 0
    rankings: set[str] = field(default_factory=set)
    unlogged: int = 0


@dataclass
class Sender:
    """One connection's worth of events and rankings, for ever; what got no answer is sent again, or given up."""

    name: str
    url: Callable[[], str]
    sent: Sent
    draw: random.Random
    stopping: asyncio.Event
    pause_s: float = 0.01
    made: int = 0

    async def run(self) -> None:
        """Until told to stop; what is waiting for an answer then is sent until it has one."""
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
            while not self.stopping.is_set():
                if self.draw.random() < 0.2:
                    await self._rank(http)
                await self._post(http, [self._event() for _ in range(self.draw.choice((1, 1, 2, 5)))])
                await asyncio.sleep(self.pause_s)

    def _event(self) -> dict[str, Any]:
        self.made += 1
        return {
            "event": "interaction",
            "id": f"{self.name}-{self.made}",
            "time": format_time(from_seconds(SystemClock().now_s())),
            "user": f"u{self.draw.randrange(USERS)}",
            "session": self.draw.choice(("a", "b")),
            "type": "opened",
            "action": self.draw.choice(ACTIONS),
        }

    async def _post(self, http: httpx.AsyncClient, events: list[dict[str, Any]]) -> None:
        ids = [event["id"] for event in events]
        while not await self._answered(http, events):
            if self.draw.random() < 0.3:
                self.sent.abandoned.update(ids)
                return
            await asyncio.sleep(0.05)

    async def _answered(self, http: httpx.AsyncClient, events: list[dict[str, Any]]) -> bool:
        try:
            reply = await http.post(f"{self.url()}/v1/events", json=events)
        except (httpx.HTTPError, httpx.InvalidURL):
            return False
        if reply.status_code != 200:
            assert reply.status_code == 503, reply.text
            self.sent.refused += 1
            return False
        for event, result in zip(events, reply.json()["results"], strict=True):
            assert result["status"] in ("accepted", "duplicate"), result
            self.sent.acknowledged.add(event["id"])
        return True

    async def _rank(self, http: httpx.AsyncClient) -> None:
        self.made += 1
        request_id = f"{self.name}-{self.made}"
        body = {
            "id": request_id,
            "user": f"u{self.draw.randrange(USERS)}",
            "context": {"surface": "chat"},
            "budget_ms": 2000,
        }
        try:
            reply = await http.post(f"{self.url()}/v1/rank", json=body)
        except (httpx.HTTPError, httpx.InvalidURL):
            return
        assert reply.status_code == 200, reply.text
        if "log:unavailable" in reply.json()["degraded"]:
            self.sent.unlogged += 1
        else:
            self.sent.rankings.add(request_id)


def lines_of(log: Path) -> list[dict[str, Any]]:
    """Every line of a log, in order, read without our own reader."""
    segments = sorted((log / "partition-0").glob("*.jsonl"))
    content = b"".join(path.read_bytes() for path in segments)
    assert not content or content.endswith(b"\n"), "a torn tail was not cut"
    return [json.loads(line) for line in content.splitlines()]


def tear(log: Path, draw: random.Random) -> None:
    """Leaves half a line, as a power loss or a full disk may."""
    last = max((log / "partition-0").glob("*.jsonl"))
    whole = json.dumps({"event": "interaction", "id": "torn", "user": "u1", "type": "opened"}).encode()
    with last.open("ab") as file:
        file.write(whole[: draw.randrange(1, len(whole))])


def taken_by_themselves(lines: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    """How often each user took each action, each id counted once: what the counters of the state must say."""
    events = {line["id"]: line for line in lines if line["event"] == "interaction"}
    found: dict[str, Counter[str]] = {f"u{number}": Counter() for number in range(USERS)}
    for event in events.values():
        found[event["user"]][event["action"]] += 1
    return found
