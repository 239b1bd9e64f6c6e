"""Several processes behind one address: what is said to one of them is so in all, and any of them may die."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from ranker.server import listen
from tests.ranker.online import run
from tests.ranker.workers.several import LAG_LIMIT_MS, Several, Worker, alive, now, several

ALL = (0, 1, 2)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """A service that the tests of this file share; the last of them ends it."""
    with several(tmp_path_factory.mktemp("three"), 3) as running:
        yield running


Seen = list[tuple[int, float, float, list[str]]]
"""Worker, when it was asked, when it had answered, what it offered."""


async def hammer(worker: Worker, done: asyncio.Event, seen: Seen) -> None:
    loop = asyncio.get_running_loop()
    while not done.is_set():
        asked_s = loop.time()
        answer = await worker.rank("share", "learn", user=f"u{len(seen) % 7}")
        seen.append((worker.number, asked_s, loop.time(), answer["offered"]))


def test_once_a_switch_off_has_returned_no_worker_offers_the_action(three: Several) -> None:
    async def work() -> None:
        seen, done, off = Seen(), asyncio.Event(), list[tuple[float, float]]()
        loop = asyncio.get_running_loop()
        async with three.workers(*ALL) as workers, three.workers(*ALL) as asked:
            hammering = [asyncio.create_task(hammer(worker, done, seen)) for worker in asked]
            for turn in range(9):
                worker = workers[turn % 3]
                await worker.put("share", off=True)
                returned_s = loop.time()
                await asyncio.sleep(0.15)
                off.append((returned_s, loop.time()))
                await worker.put("share")
                await asyncio.sleep(0.03)
            done.set()
            await asyncio.gather(*hammering)
        within = [(number, offered) for number, asked_s, answered_s, offered in seen
                  if any(start_s <= asked_s and answered_s <= end_s for start_s, end_s in off)]  # fmt: skip
        assert {number for number, _ in within} == set(ALL)
        assert [offered for _, offered in within if "share" in offered] == []
        assert {number for number, _, _, offered in seen if "share" in offered} == set(ALL)

    run(work(), 60.0)


def test_the_same_id_in_all_workers_is_one_ranking_and_one_list(three: Several) -> None:
    async def work() -> None:
        async with three.workers(*ALL) as workers:
            for number in range(3):
                answers = await asyncio.gather(*(w.rank(id=f"same-{number}") for w in workers for _ in range(2)))
                assert len({tuple(answer["offered"]) for answer in answers}) == 1
                assert all(answer["degraded"] == ["light:missing"] for answer in answers)
                conflict = await workers[number].ask(
                    "POST", "/v1/rank", {"id": f"same-{number}", "user": "u1", "context": {}, "k": 1}
                )
                assert conflict.status_code == 409
        logged = [line["id"] for line in three.lines() if line["event"] == "ranking"]
        assert [logged.count(f"same-{number}") for number in range(3)] == [1, 1, 1]

    run(work(), 60.0)


def test_an_event_that_one_worker_has_acknowledged_binds_the_next_ranking_in_another(three: Several) -> None:
    async def work() -> None:
        async with three.workers(*ALL) as workers:
            for turn in range(8):
                told, asked = workers[turn % 3], workers[(turn + 1) % 3]
                for consents, expected in ((["ads"], {"offer", "learn"}), ([], {"learn"})):
                    await told.post(event="user", user="u9", fields={"consents": consents})
                    answer = await asked.rank("offer", "learn", user="u9")
                    assert set(answer["offered"]) == expected and answer["degraded"] == ["light:missing"], answer

    run(work(), 60.0)


async def ready(url: str, workers: int) -> None:
    async with asyncio.timeout(25.0), httpx.AsyncClient(base_url=url, trust_env=False, timeout=20.0) as http:
        while (await http.get("/readyz")).json() != {"ready": True, "workers": workers}:
            await asyncio.sleep(0.05)


def test_a_worker_that_is_stopped_holds_a_change_up_once_and_withholds_until_it_has_it(three: Several) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with three.workers(0, 1, 2) as (keeper, stopped, other):
            assert "loan" in (await stopped.rank("loan", "bet", "learn"))["offered"]
            os.kill(three.pids()[1], signal.SIGSTOP)
            try:
                started_s = loop.time()
                await other.put("loan", off=True)
                first_s, started_s = loop.time() - started_s, loop.time()
                await keeper.put("bet", title="so far it is not known there")
                second_s = loop.time() - started_s
                asking = asyncio.create_task(stopped.rank("loan", "bet", "learn"))
                await asyncio.sleep(0.05)
                await ready(three.url, 2)
            finally:
                os.kill(three.pids()[1], signal.SIGCONT)
            assert first_s < 3.0 * LAG_LIMIT_MS / 1000.0
            assert second_s < LAG_LIMIT_MS / 1500.0
            answer = await asking
            assert "loan" not in answer["offered"], "it was off before it was asked"
            assert "bet" in answer["offered"] or "safety:withheld" in answer["degraded"]
            await ready(three.url, 3)
            assert (await stopped.rank("loan", "bet", "learn"))["offered"] == ["bet", "learn"]
            await stopped.put("loan")
            assert "loan" in (await other.rank("loan", "learn"))["offered"]

    run(work(), 60.0)


async def use(three: Several, done: asyncio.Event, rankings: set[str], events: set[str]) -> None:
    """Asks and tells as long as somebody answers, anew after each loss."""
    number = 0
    while not done.is_set():
        try:
            async with httpx.AsyncClient(base_url=three.url, trust_env=False, timeout=20.0) as http:
                for _ in range(5):
                    number += 1
                    name = f"use-{id(http)}-{number}"
                    body = {"id": name, "user": "u5", "context": {}, "budget_ms": 5000}
                    answer = (await http.post("/v1/rank", json=body)).json()
                    if "log:unavailable" not in answer["degraded"]:
                        rankings.add(name)
                    event = {"event": "user", "id": name, "user": "u5", "time": now(), "fields": {"a": number}}
                    told = await http.post("/v1/events", json=event)
                    if told.json()["results"][0]["status"] == "accepted":
                        events.add(name)
        except httpx.TransportError:
            continue


def test_a_worker_that_is_killed_is_replaced_and_nothing_acknowledged_is_lost(three: Several) -> None:
    async def work() -> None:
        done, rankings, events = asyncio.Event(), set[str](), set[str]()
        using = [asyncio.create_task(use(three, done, rankings, events)) for _ in range(4)]
        await asyncio.sleep(0.5)
        before = three.pids()
        os.kill(before[2], signal.SIGKILL)
        async with asyncio.timeout(25.0):
            while three.pids().get(2) in (None, before[2]):
                await asyncio.sleep(0.05)
        await ready(three.url, 3)
        done.set()
        await asyncio.gather(*using)
        async with three.workers(2) as (replaced,):
            assert (await replaced.rank())["offered"]
            metrics = (await replaced.ask("GET", "/metrics")).text
        assert "nextaction_workers_restarts 1.0" in metrics and "nextaction_workers_live 3.0" in metrics
        logged = [(line["event"], line["id"]) for line in three.lines()]
        assert rankings and events
        assert {("ranking", each) for each in rankings} <= set(logged)
        assert {("user", each) for each in events} <= set(logged)
        assert len(logged) == len(set(logged)), "nothing is there twice"

    run(work(), 90.0)


def test_other_calls_are_the_keepers_whoever_accepts_them(three: Several) -> None:
    async def work() -> None:
        async with three.workers(*ALL) as workers:
            answers = []
            for worker in workers:
                replies = [
                    await worker.ask("GET", "/v1/actions"),
                    await worker.ask("GET", "/v1/actions/none%20such%2F..%2Fthing"),
                    await worker.ask("POST", "/v1/actions"),
                    await worker.ask("GET", "/v1/models"),
                    await worker.ask("GET", "/nothing?a=1"),
                    await worker.ask("PUT", "/v1/actions/learn", {"title": 3}),
                    await worker.http.post("/v1/events", content=b" " * (9 << 20)),
                    await worker.http.post("/v1/events", content=b"{}", headers={"content-encoding": "gzip"}),
                    await worker.http.head("/readyz"),
                ]
                answers.append([(reply.status_code, reply.text) for reply in replies])
            assert answers[0] == answers[1] == answers[2]
            assert [status for status, _ in answers[0]] == [200, 404, 405, 200, 404, 422, 413, 415, 200]
            lines = b"\n".join(b'{"user":"u%d","context":{}}' % number for number in range(40))
            for worker in workers:
                reply = await worker.http.post("/v1/rank/batch", content=lines)
                assert reply.status_code == 200 and len(reply.text.splitlines()) == 40

    run(work(), 60.0)


def test_when_the_keeper_is_killed_the_others_end_and_the_address_is_free(three: Several) -> None:
    """The last of these."""
    pids = three.pids()
    assert set(pids) == {1, 2}
    three.child.kill()
    three.child.wait()

    async def ended() -> None:
        while any(alive(pid) for pid in pids.values()):
            await asyncio.sleep(0.02)

    run(ended(), 8.0)
    with listen(port=urlsplit(three.url).port or 0):
        pass


def test_told_to_stop_all_answer_what_they_have_and_end(tmp_path: Path) -> None:
    async def work() -> None:
        with several(tmp_path, 2) as running:
            pids = running.pids()
            async with running.workers(0, 1) as workers:
                lines = b"\n".join(b'{"user":"u%d","context":{}}' % number for number in range(60))
                asking = [asyncio.create_task(w.http.post("/v1/rank/batch", content=lines)) for w in workers]
                await asyncio.sleep(0.1)
                running.child.send_signal(signal.SIGTERM)
                for reply in await asyncio.gather(*asking):
                    assert reply.status_code == 200 and len(reply.text.splitlines()) == 60
            assert await asyncio.to_thread(running.child.wait, 15) == 0
            assert not any(alive(pid) for pid in pids.values())
            with socket.socket() as nobody, pytest.raises(OSError):
                nobody.connect((urlsplit(running.url).hostname, urlsplit(running.url).port))

    run(work(), 60.0)
