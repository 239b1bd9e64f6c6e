"""What was acknowledged is there exactly once, whoever is killed, whenever."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from features.embedded_store import EmbeddedServer
from features.redis_store import RedisStore
from tests.features.oracle import assert_holds_the_log
from tests.features.test_embedded_store import row_keys
from tests.ranker.faults.interrupted import Sender, Sent, Service, kill_store, lines_of, taken_by_themselves, tear
from tests.ranker.faults.loaded import until
from tests.ranker.online import run

SENDERS = 4


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="nk-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def sending(service: Service, seed: int, **settings: Any) -> AsyncIterator[Sent]:
    """Several connections send; at the end all have been answered, or have given up."""
    sent, stopping = Sent(), asyncio.Event()
    senders = [
        Sender(f"c{number}", lambda: service.url, sent, random.Random(f"{seed}-{number}"), stopping, **settings)
        for number in range(SENDERS)
    ]
    tasks = [asyncio.create_task(sender.run()) for sender in senders]
    try:
        yield sent
    finally:
        stopping.set()
        await asyncio.gather(*tasks)


async def settled(http: httpx.AsyncClient, url: str) -> None:
    """Returns once the whole log is in effect."""
    while True:
        page = (await http.get(f"{url}/metrics")).text
        numbers = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        end, applied = (float(numbers[f"nextaction_{name}"]) for name in ("log_end", "applier_applied"))
        if end == applied and (await http.get(f"{url}/readyz")).status_code == 200:
            return
        await asyncio.sleep(0.05)


async def assert_exactly_once(service: Service, socket: Path, sent: Sent) -> None:
    """In the log, in the state, and in what the service says about its users."""
    async with httpx.AsyncClient(trust_env=False) as http:
        await settled(http, service.url)
        lines = lines_of(service.log)
        times = Counter(line["id"] for line in lines if line["event"] != "ranking")
        assert {id: times[id] for id in sent.acknowledged} == dict.fromkeys(sent.acknowledged, 1)
        assert "torn" not in times
        assert not [id for id in sent.abandoned if times[id] > 1]
        ranked = Counter(line["id"] for line in lines if line["event"] == "ranking")
        assert not [id for id in sent.rankings if ranked[id] != 1]
        store = RedisStore.connect(f"unix://{socket}", timeout_ms=5000.0)
        try:
            await assert_holds_the_log(store, service.log, row_keys(socket))
        finally:
            await store.close()
        for user, taken in taken_by_themselves(lines).items():
            held = (await http.get(f"{service.url}/v1/users/{user}")).json()
            assert {action: counts["self"] for action, counts in held["counters"].items() if "self" in counts} == taken


async def interrupt(service: Service, socket_of: Any, kills: int, draw: random.Random) -> None:
    """Kills the service, its store or both, so many times, and starts again what does not start itself."""
    for _ in range(kills):
        await asyncio.sleep(draw.uniform(0.02, 0.7))
        victim = draw.choice(("service", "service", "store", "both"))
        if victim != "service":
            kill_store(socket_of())
        if victim == "store":
            continue
        await service.kill()
        if draw.random() < 0.5:
            tear(service.log, draw)
        if draw.random() < 0.25:
            await service.spawn()
            await asyncio.sleep(draw.uniform(0.0, 1.5))  # this one may not get as far as serving
            await service.kill()
        await service.start()


async def story(tmp_path: Path, short: Path, kills: int, external: bool, seed: int) -> None:
    server = EmbeddedServer.start() if external else None
    service = Service(tmp_path, short, server.url if server is not None else "embedded")
    socket_of = service.socket if server is None else lambda: server.socket_path
    try:
        await service.start()
        async with sending(service, seed) as sent:
            await interrupt(service, socket_of, kills, random.Random(seed))
            await asyncio.sleep(0.3)
        assert len(sent.acknowledged) > 20 * kills
        await assert_exactly_once(service, socket_of(), sent)
    finally:
        await service.kill()
        if server is not None:
            server.close()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux")
def test_a_full_disk_refuses_whole_posts_and_takes_them_again_when_there_is_room(tmp_path: Path, short: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path, short)
        try:
            await service.start()
            async with sending(service, 3) as sent:
                for room in (2000, 0):
                    service.room(room)
                    refused, unlogged, before = sent.refused, sent.unlogged, len(sent.acknowledged)
                    await until(lambda: sent.refused > refused + 10 and sent.unlogged > unlogged + 3)  # noqa: B023
                    full = len(sent.acknowledged)
                    assert full <= before + 30, "nothing more than had room"
                    service.room(None)
                    await until(lambda: len(sent.acknowledged) > full + 50)  # noqa: B023
            await assert_exactly_once(service, service.socket(), sent)
            found = {line["id"] for line in lines_of(service.log)}
            assert sent.abandoned and not sent.abandoned & found, "what was refused is not there"
        finally:
            await service.kill()

    run(work(), limit_s=60.0)


@pytest.mark.parametrize(("kills", "external"), [(5, False), (3, True)], ids=["embedded store", "store of its own"])
def test_what_was_acknowledged_is_there_exactly_once_after_kills(
    tmp_path: Path, short: Path, kills: int, external: bool
) -> None:
    run(story(tmp_path, short, kills, external, seed=5), limit_s=120.0)


@pytest.mark.slow
@pytest.mark.parametrize("external", [False, True], ids=["embedded store", "store of its own"])
@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_kills(tmp_path: Path, short: Path, external: bool, seed: int) -> None:
    run(story(tmp_path, short, kills=20, external=external, seed=seed), limit_s=300.0)
