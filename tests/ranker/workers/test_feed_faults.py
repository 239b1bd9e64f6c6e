"""A feed that brings what it may not, or is not read: that end is given up, and the other goes on."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from ranker.workers.endpoint import FEED
from ranker.workers.errors import FeedError
from ranker.workers.frames import MAX_FRAME_BYTES, framed
from ranker.workers.lease import Member
from ranker.workers.line import MAX_WAITING_BYTES, Line
from ranker.workers.messages import Append, Cells, Changed, Hello, Report, Said, packed
from tests.ranker.online import run
from tests.ranker.workers.pair import following, pair

NO_MESSAGE = framed(b"\xc1")
TOO_LONG = (MAX_FRAME_BYTES + 1).to_bytes(4, "big")


def said(*messages: Said) -> bytes:
    return b"".join(framed(packed(message)) for message in messages)


@pytest.mark.parametrize(
    "sent",
    [
        NO_MESSAGE,
        TOO_LONG,
        said(Append(1, "u1", b"{}", 1e12)),
        said(Hello(3, 1)) + NO_MESSAGE,
        said(Hello(3, 1), Report(b"\xc1")),
    ],
    ids=["no message", "too long", "no hello", "junk after hello", "no counts"],
)
def test_who_says_what_he_may_not_is_let_go_and_the_others_are_not(sent: bytes, tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:
            reader, writer = await asyncio.open_unix_connection(str(two.folder / FEED))
            writer.write(sent)
            async with asyncio.timeout(5.0):
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await reader.readexactly(1 << 24)
            writer.close()
            assert (await two.rank()).degraded == []
            assert list(two.feed.lags_ms()) == [1]
            assert len(two.keeper.rankings()) == 1, "nothing else was logged"

    run(work())


def test_only_this_user_can_come_to_the_feed(tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:
            assert stat.S_IMODE((two.folder / FEED).stat().st_mode) == 0o600
            assert stat.S_IMODE(two.folder.stat().st_mode) == 0o700

    run(work())


@pytest.mark.parametrize(
    "sent", [NO_MESSAGE, framed(packed(Changed(3, [("e", "share", b'{"no": 1}')]))), framed(packed(Hello(1, 1)))]
)
def test_a_follower_leaves_a_keeper_that_says_what_it_may_not(sent: bytes, tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:
            late = two.build(2)
            async with following(late, two.folder):
                await asyncio.wait_for(late.joined.wait(), 5.0)
                two.feed._lines[2].transport.write(sent)
                async with asyncio.timeout(5.0):
                    while 2 in two.feed.lags_ms():
                        await asyncio.sleep(0.005)

    run(work())


def test_without_a_keeper_following_is_an_error(tmp_path: Path) -> None:
    async def work() -> None:
        async with pair(tmp_path) as two:
            with pytest.raises(FeedError, match="cannot be reached"):
                await two.build(2).feed.run(tmp_path / "none")

    run(work())


class Deaf(asyncio.Transport):
    """Takes everything and sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting, self.aborted = 0, False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.waiting += len(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def abort(self) -> None:
        self.aborted = True


def test_who_never_reads_is_let_go_before_memory_fills_up() -> None:
    async def work() -> None:
        transport, member = Deaf(), Member(100.0)
        line = Line(1, 1, transport, member, lambda: 0.0)
        part = Cells([("g", str(number), bytes(112)) for number in range(200_000)])
        sent = 0
        while not member.gone:
            line.tell(part)
            await asyncio.sleep(0)
            sent += 1
        assert transport.aborted and transport.waiting <= 1.5 * MAX_WAITING_BYTES
        line.tell(part)
        await asyncio.sleep(0)
        assert member.sent == sent, "nothing more goes to who has left"

    run(work())
