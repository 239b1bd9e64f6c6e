"""The whole contract of `id`, between two service processes that share a store."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from features.embedded_store import EmbeddedServer
from features.events import RankingEvent
from features.log import read_log
from ranker.idempotency import KEEP_S
from tests.command_line import ROOT
from tests.ranker.online import run

SLOW_S = 0.4


@dataclass
class Member:
    """One of the two."""

    url: str
    folder: Path
    child: subprocess.Popen[bytes]

    async def rank(self, **fields: Any) -> httpx.Response:
        body = {"user": "u1", "context": {"surface": "chat", "locale": "en-GB"}, "k": 4, "budget_ms": 3000, **fields}
        async with httpx.AsyncClient(trust_env=False, timeout=10.0) as http:
            return await http.post(f"{self.url}/v1/rank", json=body)

    def logged(self, request_id: str) -> int:
        events = [event for _, event in read_log(self.folder / "log")]
        return sum(isinstance(event, RankingEvent) and event.id == request_id for event in events)


@contextmanager
def member(folder: Path, server: EmbeddedServer, slow_s: float) -> Iterator[Member]:
    command = [sys.executable, "-m", "tests.ranker.faults.sharing", folder, server.url, folder.name, slow_s]
    child = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, cwd=ROOT)
    with child:
        try:
            yield Member("", folder, child)
        finally:
            child.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    running = EmbeddedServer.start()
    yield running
    running.close()


@pytest.fixture(scope="module")
def two(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Member, Member]]:
    """A slow one and a quick one, both started at once."""
    folder = tmp_path_factory.mktemp("two")
    with ExitStack() as stack:
        slow, quick = (stack.enter_context(member(folder / name, server, s)) for name, s in (("a", SLOW_S), ("b", 0.0)))
        for one in (slow, quick):
            assert one.child.stdout is not None
            one.url = json.loads(one.child.stdout.readline())["url"]
        yield slow, quick


async def claimed(server: EmbeddedServer, before: set[bytes]) -> None:
    """Returns once some process has claimed an id that nobody had claimed before."""
    with redis.Redis(unix_socket_path=str(server.socket_path), protocol=2) as raw:
        while set(raw.keys("shared:*")) <= before:
            await asyncio.sleep(0.01)


def claims(server: EmbeddedServer) -> set[bytes]:
    with redis.Redis(unix_socket_path=str(server.socket_path), protocol=2) as raw:
        return set(raw.keys("shared:*"))


def items(reply: httpx.Response) -> list[str]:
    assert reply.status_code == 200, reply.text
    return [item["action"] for item in reply.json()["items"]]


def test_who_asks_the_other_process_waits_for_the_one_that_is_running_and_gets_its_answer(
    two: tuple[Member, Member], server: EmbeddedServer
) -> None:
    slow, quick = two

    async def work() -> None:
        before = claims(server)
        first = asyncio.create_task(slow.rank(id="one"))
        await claimed(server, before)
        started = time.monotonic()
        second = await quick.rank(id="one")
        assert time.monotonic() - started > SLOW_S / 4, "it waited"
        assert second.json() == (await first).json()
        assert items(second) and not second.json()["degraded"]
        assert (slow.logged("one"), quick.logged("one")) == (1, 0)

    run(work())


def test_another_body_is_a_conflict_while_it_runs_and_after(two: tuple[Member, Member], server: EmbeddedServer) -> None:
    slow, quick = two

    async def work() -> None:
        before = claims(server)
        first = asyncio.create_task(slow.rank(id="two"))
        await claimed(server, before)
        for wait_s in (0.0, SLOW_S):
            await asyncio.sleep(wait_s)
            for one in two:
                reply = await one.rank(id="two", k=1)
                assert reply.status_code == 409
                assert "two" in reply.json()["detail"]
        assert items(await quick.rank(id="two")) == items(await first)
        assert (await quick.rank(id="two", user="u2", k=1)).status_code == 200, "an id is the user's own"

    run(work())


def test_what_was_answered_is_kept_for_a_day(two: tuple[Member, Member], server: EmbeddedServer) -> None:
    async def work() -> None:
        with redis.Redis(unix_socket_path=str(server.socket_path), protocol=2) as raw:
            before = set(raw.keys("shared:*"))
            await two[1].rank(id="three")
            (key,) = set(raw.keys("shared:*")) - before
            assert KEEP_S - 60 <= int(raw.ttl(key)) <= KEEP_S

    run(work())


def test_a_stored_answer_loses_what_the_process_that_is_asked_knows_to_be_off(two: tuple[Member, Member]) -> None:
    slow, quick = two

    async def work() -> None:
        first = items(await slow.rank(id="four"))
        async with httpx.AsyncClient(trust_env=False) as http:
            put = await http.put(f"{quick.url}/v1/actions/{first[1]}", json={"off": True})
            assert put.status_code == 200
        assert items(await quick.rank(id="four")) == [action for action in first if action != first[1]]
        assert items(await slow.rank(id="four")) == first

    run(work())


def test_when_its_process_is_killed_the_other_answers_within_the_budget_and_says_that_it_could_not_know(
    two: tuple[Member, Member], server: EmbeddedServer, tmp_path: Path
) -> None:
    with member(tmp_path / "c", server, 5.0) as third:
        assert third.child.stdout is not None
        third.url = json.loads(third.child.stdout.readline())["url"]

        async def work() -> None:
            before = claims(server)
            lost = asyncio.create_task(third.rank(id="five", budget_ms=600))
            await claimed(server, before)
            third.child.kill()
            with pytest.raises(httpx.HTTPError):
                await lost
            body = {"id": "five", "budget_ms": 600}
            reply = await two[1].rank(**body)
            assert items(reply) and reply.json()["degraded"] == ["id:unverified"]
            assert reply.json()["timings_ms"]["total"] <= 600.0
            await asyncio.sleep(3.0)
            again = await two[1].rank(**body)
            assert again.json()["degraded"] == [], "a claim outlives its owner by little"

        run(work())


def test_without_the_store_each_answers_afresh_and_says_so(two: tuple[Member, Member], server: EmbeddedServer) -> None:
    """The last of these: it ends the store."""

    async def work() -> None:
        first = await two[1].rank(id="six")
        assert first.json()["degraded"] == []
        await asyncio.to_thread(server.close)
        replies = [await one.rank(id="six") for one in two]
        for reply in replies:
            assert items(reply)
            assert set(reply.json()["degraded"]) >= {"id:unverified", "features:unavailable"}
        assert (await two[1].rank(id="six", k=1)).status_code == 200, "nobody can know of another body"

    run(work())
