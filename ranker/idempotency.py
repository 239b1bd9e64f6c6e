"""The same id asked twice is answered once: here, in another process, and after a restart.

An id is scoped to its caller and user. Who comes first claims it in the store and leaves the answer
there; who comes with the same body gets that answer, who comes with another is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

import msgspec

from features.errors import StoreError
from features.store import FeatureStore
from ranker.answers import RankAnswer
from ranker.errors import Conflict

KEEP_S = 24 * 3600
POLL_S = 0.005
MAX_USERS = 100_000


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    state: Literal["running", "done", "void"]
    body: bytes = b""
    answer: bytes = b""


@dataclass(frozen=True)
class Asked:
    """A request with an id.

    Args:
        body: as received; another body under the same id is a conflict.
        wait_s: how long the caller can still wait.
    """

    caller: str
    user: str
    request_id: str
    body: bytes
    wait_s: float

    @property
    def key(self) -> str:
        """Where the answer is kept."""
        return "a:" + _digest(self.caller.encode(), self.user.encode(), self.request_id.encode()).hex()


@dataclass
class _Running:
    body: bytes
    done: asyncio.Future[RankAnswer | None]


Compute = Callable[[bool], Awaitable[RankAnswer]]
"""Makes the answer; False: whether the id was answered before could not be found out."""


@dataclass
class Answers:
    """Remembered answers over a store.

    Args:
        unkept: answers so far that could not be left in the store.
    """

    store: FeatureStore
    keep_s: int = KEEP_S
    unkept: int = 0
    _running: dict[str, _Running] = field(default_factory=dict)
    _by_user: OrderedDict[str, set[str]] = field(default_factory=OrderedDict)

    async def give(self, asked: Asked, compute: Compute) -> tuple[RankAnswer, bool]:
        """The answer, and whether it is one that was given before.

        Raises:
            Conflict: the id came with another body.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(asked.wait_s):
                while (running := self._running.get(asked.key)) is not None:
                    _check_body(asked, running.body, _digest(asked.body))
                    answer = await asyncio.shield(running.done)
                    if answer is not None:
                        return answer, True
        if asked.key in self._running:
            return await compute(False), False
        return await self._first_here(asked, compute)

    async def forget(self, user: str) -> None:
        """Drops what is remembered for a user, as far as this process left it there."""
        for key in self._by_user.pop(user, ()):
            with contextlib.suppress(StoreError):
                await self.store.put(key, _packed(_Entry("void")), 1)

    async def _first_here(self, asked: Asked, compute: Compute) -> tuple[RankAnswer, bool]:
        running = _Running(_digest(asked.body), asyncio.get_running_loop().create_future())
        self._running[asked.key] = running
        answer: RankAnswer | None = None
        try:
            answer, repeated = await self._claimed(asked, running.body, compute)
            return answer, repeated
        finally:
            del self._running[asked.key]
            running.done.set_result(answer)

    async def _claimed(self, asked: Asked, body: bytes, compute: Compute) -> tuple[RankAnswer, bool]:
        claim = _packed(_Entry("running", body))
        # A claim outlives its owner by little: should it crash, the id is free again.
        ttl_s = math.ceil(asked.wait_s) + 2
        try:
            found = await self._found(asked, body, claim, ttl_s)
        except (StoreError, TimeoutError):
            return await compute(False), False
        if found is not None:
            return found, True
        return await self._computed(asked, body, compute), False

    async def _found(self, asked: Asked, body: bytes, claim: bytes, ttl_s: int) -> RankAnswer | None:
        """The answer that is there, None when the id is ours; waits for one that is being made elsewhere."""
        async with asyncio.timeout(asked.wait_s):
            while True:
                entry = _unpacked(await self.store.claim(asked.key, claim, ttl_s))
                if entry is None or entry.state == "void":
                    return None
                _check_body(asked, entry.body, body)
                if entry.state == "done":
                    return msgspec.json.decode(entry.answer, type=RankAnswer)
                await asyncio.sleep(POLL_S)

    async def _computed(self, asked: Asked, body: bytes, compute: Compute) -> RankAnswer:
        try:
            answer = await compute(True)
        except BaseException:
            with contextlib.suppress(StoreError):
                await self.store.put(asked.key, _packed(_Entry("void")), 1)
            raise
        try:
            await self.store.put(asked.key, _packed(_Entry("done", body, msgspec.json.encode(answer))), self.keep_s)
            self._note(asked)
        except StoreError:
            self.unkept += 1
        return answer

    def _note(self, asked: Asked) -> None:
        self._by_user.setdefault(asked.user, set()).add(asked.key)
        self._by_user.move_to_end(asked.user)
        if len(self._by_user) > MAX_USERS:
            self._by_user.popitem(last=False)


def _check_body(asked: Asked, there: bytes, mine: bytes) -> None:
    if there != mine:
        raise Conflict(f"id {asked.request_id!r} came before with another body", "$.id")


def _digest(*parts: bytes) -> bytes:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _packed(entry: _Entry) -> bytes:
    return msgspec.msgpack.encode(entry)


def _unpacked(packed: bytes | None) -> _Entry | None:
    """None for nothing, and for what is no entry: it is replaced."""
    if packed is None:
        return None
    try:
        return msgspec.msgpack.decode(packed, type=_Entry)
    except msgspec.DecodeError:
        return _Entry("void")
