"""The server: loopback, a port known first, requests in flight end before it stops, heads are bounded."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import threading
from urllib.parse import urlsplit

import httpx
import pytest

from ranker.answers import RankAnswer
from ranker.server import MAX_HEADER_BYTES, listen, run_on_uvloop, serve, stopped_by_signals, url_of
from ranker.types import RankRequest
from tests.ranker.api.fake_service import RANK, FakeService
from tests.ranker.api.running import running


def test_it_listens_on_loopback_at_a_free_port_unless_told_otherwise() -> None:
    with listen() as one, listen() as other:
        assert url_of(one).startswith("http://127.0.0.1:")
        assert url_of(one) != url_of(other)


def test_a_port_in_use_is_refused() -> None:
    with listen() as taken:
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            listen(port=taken.getsockname()[1])


def test_the_url_of_an_ipv6_listener_has_brackets() -> None:
    try:
        listener = listen("::1")
    except OSError:
        pytest.skip("no IPv6 here")
    with listener:
        assert url_of(listener).startswith("http://[::1]:")


def test_the_port_is_free_again_once_the_server_has_stopped() -> None:
    with running(FakeService()) as url:
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
        port = urlsplit(url).port or 0
    with listen(port=port):
        pass


class SlowService(FakeService):
    """Ranks when it is let."""

    async def rank(
        self, request: RankRequest, body: bytes, *, caller: str, explain: bool, arrived_ms: float
    ) -> RankAnswer:
        self.entered.set()
        await asyncio.sleep(0.3)
        return await super().rank(request, body, caller=caller, explain=explain, arrived_ms=arrived_ms)

    entered = threading.Event()


def test_a_request_in_flight_is_answered_before_the_server_stops() -> None:
    service, statuses = SlowService(), list[int]()
    with running(service) as url:

        def ask() -> None:
            statuses.append(httpx.post(f"{url}/v1/rank", json=RANK, trust_env=False).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        assert service.entered.wait(5)
    asking.join(5)
    assert statuses == [200]


def talk(url: str, *pieces: bytes) -> bytes:
    """Sends pieces one by one until there is an answer, and reads it."""
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=5) as connection:
        for piece in pieces:
            connection.sendall(piece)
            if select.select([connection], [], [], 0.02)[0]:
                break
        return connection.recv(65536)


def test_a_head_without_end_is_cut_off() -> None:
    with running(FakeService()) as url:
        heads = [b"GET /healthz HTTP/1.1\r\nhost: a\r\nx: ", *[b"y" * 10_000] * (MAX_HEADER_BYTES // 10_000 + 2)]
        assert talk(url, *heads).startswith(b"HTTP/1.1 431 ")
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200


def test_a_large_body_in_pieces_is_not_taken_for_a_head() -> None:
    with running(FakeService()) as url:
        length = 10 * MAX_HEADER_BYTES // 2
        head = f"POST /v1/rank HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n".encode()
        body = b'{"user":"u","context":{}}'.ljust(length)
        answer = talk(url, head, *[body[start : start + 20_000] for start in range(0, length, 20_000)])
        assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("junk", [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET /\xff HTTP/1.1\r\nhost: a\r\n\r\n"])
def test_what_is_not_http_is_400_and_the_server_lives_on(junk: bytes) -> None:
    with running(FakeService()) as url:
        assert talk(url, junk).startswith(b"HTTP/1.1 400 ")
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200


def test_a_body_over_the_limit_is_answered_over_a_real_connection() -> None:
    with running(FakeService()) as url, httpx.Client(base_url=url, trust_env=False) as client:
        assert client.post("/v1/rank", content=b" " * 5_000_000).status_code == 413
        assert client.post("/v1/rank", content=iter([b" " * 65_536] * 80)).status_code == 413
        assert client.post("/v1/rank", json=RANK).status_code == 200


def test_a_signal_sets_stop_and_leaves_the_process_alone() -> None:
    async def main() -> bool:
        stop = asyncio.Event()
        with stopped_by_signals(stop):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(stop.wait(), 5)
        return stop.is_set()

    assert run_on_uvloop(main())


def test_head_is_answered_without_a_body() -> None:
    with running(FakeService()) as url, httpx.Client(base_url=url, trust_env=False) as client:
        answers = [client.head("/healthz"), client.get("/healthz")]
    assert [(answer.status_code, answer.content) for answer in answers] == [(200, b""), (200, b'{"status":"ok"}')]


def test_stopping_before_anybody_asked_is_clean() -> None:
    async def main() -> str:
        stop, urls = asyncio.Event(), list[str]()
        stop.set()
        await serve(_no_app, listen(), stop, on_started=urls.append)
        return urls[0]

    assert asyncio.run(main()).startswith("http://127.0.0.1:")


async def _no_app(scope: object, receive: object, send: object) -> None:
    raise AssertionError("nobody asks")
