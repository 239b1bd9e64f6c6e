"""What a follower hands on arrives as it was sent, and what is answered comes back as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from features.server_folder import new_folder
from ranker.api.follower import named
from ranker.api.forwarding import Forwarding
from ranker.api.limits import Limits
from ranker.server import listen, serve, url_of
from ranker.workers.endpoint import FORWARD, private_socket
from tests.ranker.online import run

Seen = list[dict[str, Any]]


def mirror(seen: Seen) -> Any:
    """An application that remembers what it got and answers in three pieces."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                seen.append({"left": True})
                return
            body, more = body + message.get("body", b""), message.get("more_body", False)
        seen.append({**{name: scope[name] for name in ("method", "raw_path", "query_string", "headers")}, "body": body})
        headers = [(b"x-one", b"1"), (b"x-one", b"2"), (b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 207, "headers": headers})
        for piece in (b"a", b"b"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"c"})

    return app


async def accepts(path: Path) -> None:
    """Returns once somebody listens there."""
    async with asyncio.timeout(5.0):
        while True:
            try:
                _, writer = await asyncio.open_unix_connection(str(path))
            except ConnectionRefusedError:
                await asyncio.sleep(0.005)
                continue
            writer.close()
            await writer.wait_closed()
            return


@asynccontextmanager
async def handed_on(seen: Seen) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """The URL of a worker that hands everything on, and what ends the process behind it."""
    folder, stop, stop_behind = new_folder(), asyncio.Event(), asyncio.Event()
    forwarding, listener = Forwarding(str(folder / FORWARD), Limits()), listen()
    behind = asyncio.create_task(serve(mirror(seen), private_socket(folder, FORWARD), stop_behind))
    started = asyncio.Event()
    work = serve(named(forwarding, 4), listener, stop, on_started=lambda _url: started.set())
    before = asyncio.create_task(work)
    try:
        await started.wait()
        await accepts(folder / FORWARD)
        yield url_of(listener), stop_behind
    finally:
        stop.set()
        await before
        stop_behind.set()
        await behind
        await forwarding.close()
        (folder / FORWARD).unlink()
        folder.rmdir()


def test_path_query_headers_and_body_are_handed_on_as_they_are() -> None:
    async def work() -> None:
        seen = Seen()
        async with handed_on(seen) as (url, _), httpx.AsyncClient(trust_env=False) as http:
            target = b"/v1/users/a%2F..%2Fb%0a/../c?x=%41&y"
            request = http.build_request(
                "PUT", url, content=b"\x00\xff" * 5, headers={"x-caller": "me", "x-request-id": "7", "te": "trailers"}
            )
            request.extensions["target"] = target
            reply = await http.send(request)
            assert (reply.status_code, reply.content) == (207, b"abc")
            assert reply.headers.get_list("x-one") == ["1", "2"] and reply.headers["x-worker"] == "4"
            assert len(reply.headers.get_list("date")) == 1
            (got,) = seen
            assert got["raw_path"] + b"?" + got["query_string"] == target
            assert (got["method"], got["body"]) == ("PUT", b"\x00\xff" * 5)
            headers = dict(got["headers"])
            assert (headers[b"x-caller"], headers[b"x-request-id"]) == (b"me", b"7") and b"te" not in headers
            assert await head(http, url) == (207, b"")

    run(work())


async def head(http: httpx.AsyncClient, url: str) -> tuple[int, bytes]:
    reply = await http.head(url)
    return reply.status_code, reply.content


def test_a_body_in_pieces_without_a_length_arrives_whole() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(50):
            yield b"%d," % number * 1000

    async def work() -> None:
        seen = Seen()
        async with handed_on(seen) as (url, _), httpx.AsyncClient(trust_env=False) as http:
            assert (await http.post(url, content=pieces())).status_code == 207
        assert seen[0]["body"] == b"".join(b"%d," % number * 1000 for number in range(50))

    run(work())


def test_a_client_that_leaves_in_its_body_leaves_there_too() -> None:
    async def work() -> None:
        seen = Seen()
        async with handed_on(seen) as (url, _):
            address = url.removeprefix("http://").split(":")
            _, writer = await asyncio.open_connection(address[0], int(address[1]))
            writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf")
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.close()
            async with asyncio.timeout(5.0):
                while not seen:
                    await asyncio.sleep(0.01)
        assert seen == [{"left": True}]

    run(work())


def test_without_the_other_process_the_answer_is_a_503_that_says_to_try_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with handed_on([]) as (url, stop_behind), httpx.AsyncClient(trust_env=False) as http:
            assert (await http.get(url)).status_code == 207
            stop_behind.set()
            await asyncio.sleep(0.2)
            reply = await http.get(url)
            assert (reply.status_code, reply.json()["type"]) == (503, "/problems/unavailable")
            assert reply.headers["retry-after"] == "1"

    run(work())
