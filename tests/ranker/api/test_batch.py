"""`POST /v1/rank/batch`: a line in, a line out, in order, however many, and people go first."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from features.catalogue import ActionSpec
from ranker.answers import RankAnswer
from ranker.api.limits import Limits
from ranker.api.turns import Turns
from ranker.client import ApiError, Client
from ranker.types import RankRequest
from tests.ranker.api.fake_service import RANK, App, FakeService
from tests.ranker.api.running import running

PATH = "/v1/rank/batch"
GOOD = json.dumps(RANK).encode()


def request(number: int, **fields: Any) -> bytes:
    return json.dumps({**RANK, "id": f"q{number}", **fields}).encode()


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.content.split(b"\n") if line]


def test_each_line_gets_its_answer_in_order() -> None:
    answer = App().ask("POST", PATH, b"\n".join(map(request, range(5))))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    assert [line["id"] for line in lines_of(answer)] == [f"q{number}" for number in range(5)]
    assert {line["traffic"] for line in lines_of(answer)} == {"replay"}


def test_blank_lines_and_the_last_break_are_no_lines() -> None:
    body = b"\n \r\n" + request(0) + b"\r\n\n" + request(1) + b"\n\n"
    assert [line["id"] for line in lines_of(App().ask("POST", PATH, body))] == ["q0", "q1"]


def test_reasons_are_given_when_asked_for() -> None:
    (line,) = lines_of(App().ask("POST", f"{PATH}?explain=true", GOOD))
    assert line["items"][0]["reasons"] == ["prior"]


@pytest.mark.parametrize(
    ("line", "status", "field", "value"),
    [
        (b"not json", 400, "$[1]", None),
        (b'{"user":"u","context":{},"k":0}', 422, "$[1].k", "0"),
        (b'{"context":{}}', 422, "$[1].user", None),
        (b'{"user":"u","context":{"time":"1969-12-31T23:59:59Z"}}', 422, "$[1].context.time", None),
        (b'{"user":"u","context":{"time":"9999-12-31T00:00:00Z"}}', 422, "$[1].context.time", None),
        (b'{"user":"u","context":{"fields":{"a":1e400}}}', 422, "$[1].context.fields.a", '"1e400"'),
        (b"[" * 100_000, 422, "$[1]", None),
        (b'{"user":"' + b"u" * 300_000 + b'"}', 413, "$", None),
        (b" " * 300_000, 413, "$", None),
    ],
)
def test_a_line_that_is_wrong_gets_its_problem_and_the_others_their_answers(
    line: bytes, status: int, field: str, value: str | None
) -> None:
    found = lines_of(App().ask("POST", PATH, b"\n".join([request(0), line, request(2)])))
    assert [found[0]["id"], found[2]["id"]] == ["q0", "q2"]
    assert (found[1]["status"], found[1]["field"]) == (status, field)
    assert value is None or found[1]["value"] == value


@pytest.mark.parametrize("body", [b"", b"\n \n"])
def test_a_body_without_a_line_is_refused(body: bytes) -> None:
    assert App().ask("POST", PATH, body).status_code == 400


def test_what_is_wrong_before_the_first_line_has_a_status_of_its_own() -> None:
    assert App().ask("POST", PATH, GOOD, content_encoding="gzip").status_code == 415
    assert App().ask("POST", f"{PATH}?explain=perhaps", GOOD).status_code == 422
    assert App().ask("GET", PATH).status_code == 405


def test_an_error_of_the_service_costs_one_line_and_is_found_in_the_log() -> None:
    class Failing(FakeService):
        async def rank_offline(self, request: RankRequest, *, explain: bool) -> RankAnswer:
            if request.id == "q1":
                raise RuntimeError("a secret")
            return await super().rank_offline(request, explain=explain)

    found = lines_of(App(Failing()).ask("POST", PATH, b"\n".join(map(request, range(3)))))
    assert [line.get("id") for line in found] == ["q0", None, "q2"]
    assert found[1]["status"] == 500 and len(found[1]["error_id"]) == 32 and "secret" not in str(found[1])


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_may_arrive_in_pieces_of_any_size(size: int) -> None:
    body = b"\n".join([request(0), b"x" * 3000, request(2), "é".encode() * 500, request(4)])

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    found = lines_of(App(limits=Limits(rank_bytes=2000)).ask("POST", PATH, pieces()))
    assert [line.get("id", line.get("status")) for line in found] == ["q0", 413, "q2", 400, "q4"]


def test_a_body_that_stops_arriving_ends_with_a_problem() -> None:
    with running(FakeService(), Limits(batch_idle_s=0.05)) as url, Talk(url) as talk:
        talk.send(request(0) + b"\n")
        assert json.loads(next(talk.lines))["id"] == "q0"
        assert json.loads(next(talk.lines))["type"] == "/problems/body-timeout"
        assert list(talk.lines) == []
    with running(FakeService(), Limits(batch_idle_s=0.05)) as url, Talk(url) as talk:
        assert b" 408 " in talk.head()


class Talk:
    """A batch over a bare connection: both sides may write at once."""

    def __init__(self, url: str) -> None:
        self._socket = socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=30)
        self._file = self._socket.makefile("rb")
        head = f"POST {PATH} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        self._socket.sendall(head.encode())
        self.lines = self._read()

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._file.close()
        self._socket.close()

    def send(self, piece: bytes) -> None:
        self._socket.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))

    def end(self) -> None:
        self._socket.sendall(b"0\r\n\r\n")

    def head(self) -> bytes:
        return self._file.readline()

    def _read(self) -> Iterator[bytes]:
        assert b" 200 " in self.head()
        while self._file.readline().strip():
            pass
        held = b""
        while size := int(self._file.readline(), 16):
            held += self._file.read(size)
            self._file.readline()
            *whole, held = held.split(b"\n")
            yield from whole


def test_a_line_is_answered_before_the_next_one_is_sent() -> None:
    with running(FakeService()) as url, Talk(url) as talk:
        for number in range(3):
            talk.send(request(number) + b"\n")
            assert json.loads(next(talk.lines))["id"] == f"q{number}"
        talk.end()
        assert list(talk.lines) == []


def test_twenty_thousand_lines_take_no_more_memory_than_a_few() -> None:
    def ask(count: int) -> int:
        with Talk(url) as talk:

            def write() -> None:
                for start in range(0, count, 50):
                    talk.send(b"".join(request(number) + b"\n" for number in range(start, start + 50)))
                talk.end()

            writer = threading.Thread(target=write, daemon=True)
            writer.start()
            for number, line in enumerate(talk.lines):
                assert json.loads(line)["id"] == f"q{number}"
            writer.join(10)
            return number + 1

    with running(FakeService()) as url:
        assert ask(2000) == 2000
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert ask(20_000) == 20_000
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mb < 8.0  # the answers alone are 5 MB, the requests 1.5: kept, as objects, they would be far more


class CountingService(FakeService):
    """Counts what it ranks; its answers are large."""

    def __init__(self, pause_s: float) -> None:
        super().__init__({f"action {'x' * 200} {number}": ActionSpec() for number in range(50)})
        self.pause_s, self.offline = pause_s, 0

    async def rank_offline(self, request: RankRequest, *, explain: bool) -> RankAnswer:
        self.offline += 1
        await asyncio.sleep(self.pause_s)
        return await super().rank_offline(request, explain=explain)


def settled(service: CountingService) -> int:
    """How many lines were ranked once that number has stopped to move."""
    done = -1
    for _ in range(100):
        if done == (done := service.offline):
            break
        time.sleep(0.15)
    return done


def test_a_client_that_leaves_ends_the_work() -> None:
    service = CountingService(pause_s=0.002)
    with running(service) as url:
        with Talk(url) as talk:
            talk.send(request(0, k=50) + b"\n")
            next(talk.lines)
            talk.send(b"".join(request(number, k=50) + b"\n" for number in range(400)))
            time.sleep(0.05)
        assert 0 < settled(service) < 400
        metrics = httpx.get(f"{url}/metrics", trust_env=False).text
        assert 'nextaction_http_disconnects_total{route="/v1/rank/batch"} 1.0' in metrics


def test_a_client_that_does_not_read_is_waited_for() -> None:
    service = CountingService(pause_s=0.0)
    with running(service) as url, Talk(url) as talk:

        def write() -> None:
            with contextlib.suppress(OSError):
                for number in range(10_000):
                    talk.send(request(number, k=50) + b"\n")
                talk.end()

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        assert settled(service) < 5_000
        assert [json.loads(next(talk.lines))["id"] for _ in range(3)] == ["q0", "q1", "q2"]
        talk.close()
        writer.join(10)


def test_people_are_answered_while_a_batch_runs() -> None:
    with running(FakeService()) as url, Talk(url) as talk:
        stop = threading.Event()

        def batch() -> None:
            while not stop.is_set():
                talk.send(b"".join(request(number) + b"\n" for number in range(100)))
            talk.end()

        writer = threading.Thread(target=batch, daemon=True)
        writer.start()
        reader = threading.Thread(target=lambda: list(talk.lines), daemon=True)
        reader.start()
        with httpx.Client(base_url=url, trust_env=False) as client:
            assert {client.post("/v1/rank", json=RANK).status_code for _ in range(20)} == {200}
        assert reader.is_alive()
        stop.set()
        writer.join(10)
        reader.join(10)


def test_a_line_waits_for_a_quiet_moment_but_not_for_ever() -> None:
    async def main() -> list[str]:
        turns, order = Turns(max_wait_s=0.05), list[str]()
        turns.begin()

        async def line(name: str) -> None:
            async with turns.offline():
                order.append(name)

        waiting = asyncio.create_task(line("after it was quiet"))
        await asyncio.sleep(0.01)
        order.append("a person")
        turns.end()
        await waiting
        turns.begin()
        await asyncio.wait_for(line("though it was never quiet"), 5)
        return order

    assert asyncio.run(main()) == ["a person", "after it was quiet", "though it was never quiet"]


def test_the_client_takes_requests_as_it_needs_them_and_gives_problems_in_their_place() -> None:
    taken = []

    def requests() -> Iterator[dict[str, Any]]:
        for number in range(3000):
            taken.append(number)
            yield {**RANK, "id": f"q{number}", "k": 0 if number == 700 else 3}

    with running(FakeService()) as url, Client(url) as client:
        answers = client.rank_batch(requests())
        assert isinstance(first := next(answers), RankAnswer) and first.id == "q0"
        assert len(taken) < 3000
        rest = list(answers)
        assert isinstance(wrong := rest[699], ApiError) and (wrong.status, wrong.problem["value"]) == (422, "0")
        assert [answer.id for answer in rest if isinstance(answer, RankAnswer)][-1] == "q2999"
        assert list(client.rank_batch([])) == []
        assert len(rest) == 2999
