"""The same id asked twice is answered once: here, in another process, and after a restart.

An id is scoped to its caller and user. Who comes first claims it in the store and leaves the answer
there; who comes with the same body gets that answer, who comes with another is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, NamedTuple

import msgspec

from features.errors import StoreError
from features.store import FeatureStore
from ranker.answers import RankAnswer
from ranker.errors import Conflict

KEEP_S = 24 * 3600
POLL_S = 0.005
MAX_FORGOTTEN = 100_000

ANSWER_S = 0.02
"""What looking for an earlier answer leaves of the caller's time to make one; of less than twice this, half."""

SEND_S = 0.002
"""What keeping an answer leaves of the caller's time; the store gets it all the same, a little later."""


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    state: Literal["running", "done", "void"]
    body: bytes = b""
    answer: bytes = b""
    begun_s: float = 0.0


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


class _Until(NamedTuple):
    """Instants on the loop's clock that end looking for an earlier answer, and waiting for this one to be kept."""

    look_s: float
    keep_s: float


Compute = Callable[[bool], Awaitable[RankAnswer]]
"""Makes the answer; False: whether the id was answered before could not be found out."""


@dataclass
class Answers:
    """Remembered answers over a store.

    Args:
        now_s: Unix seconds: what was begun before its user was forgotten is no answer.
        unkept: answers so far that could not be left in the store.
    """

    store: FeatureStore
    now_s: Callable[[], float] = time.time
    keep_s: int = KEEP_S
    unkept: int = 0
    _running: dict[str, _Running] = field(default_factory=dict)
    _forgotten: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _keeping: set[asyncio.Task[None]] = field(default_factory=set)

    async def give(self, asked: Asked, compute: Compute) -> tuple[RankAnswer, bool]:
        """The answer, and whether it is one that was given before.

        Raises:
            Conflict: the id came with another body.
        """
        until = _until(asked, asyncio.get_running_loop().time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until.look_s):
                while (running := self._running.get(asked.key)) is not None:
                    _check_body(asked, running.body, _digest(asked.body))
                    answer = await asyncio.shield(running.done)
                    if answer is not None:
                        return answer, True
        if asked.key in self._running:
            return await compute(False), False
        return await self._first_here(asked, until, compute)

    def note_forgotten(self, user: str, at_s: float) -> None:
        """Drops here what was begun for a user before an instant in Unix seconds."""
        self._forgotten[user] = max(at_s, self._forgotten.get(user, at_s))
        if len(self._forgotten) > MAX_FORGOTTEN:
            self._forgotten.popitem(last=False)

    async def forget(self, user: str) -> None:
        """Drops what is remembered for a user: here at once, elsewhere and after a restart once the store has it."""
        now_s = self.now_s()
        self.note_forgotten(user, now_s)
        with contextlib.suppress(StoreError):
            await self.store.put(_forgotten_key(user), msgspec.msgpack.encode(now_s), self.keep_s)

    async def _first_here(self, asked: Asked, until: _Until, compute: Compute) -> tuple[RankAnswer, bool]:
        running = _Running(_digest(asked.body), asyncio.get_running_loop().create_future())
        self._running[asked.key] = running
        answer: RankAnswer | None = None
        try:
            answer, repeated = await self._claimed(asked, running.body, until, compute)
            return answer, repeated
        finally:
            del self._running[asked.key]
            running.done.set_result(answer)

    async def _claimed(self, asked: Asked, body: bytes, until: _Until, compute: Compute) -> tuple[RankAnswer, bool]:
        try:
            async with asyncio.timeout_at(until.look_s):
                found = await self._found(asked, body)
        except (StoreError, TimeoutError):
            return await compute(False), False
        if found is not None:
            return found, True
        return await self._computed(asked, body, until, compute), False

    async def _found(self, asked: Asked, body: bytes) -> RankAnswer | None:
        """The answer that is there, None when the id is ours; waits for one that is being made elsewhere."""
        # A claim outlives its owner by little: should it crash, the id is free again.
        claim, ttl_s = _packed(_Entry("running", body)), math.ceil(asked.wait_s) + 2
        while True:
            entry = _unpacked(await self.store.claim(asked.key, claim, ttl_s))
            if entry is None or entry.state == "void":
                return None
            if entry.state == "done" and entry.begun_s <= await self._forgotten_s(asked.user):
                return None
            _check_body(asked, entry.body, body)
            if entry.state == "done":
                return msgspec.json.decode(entry.answer, type=RankAnswer)
            await asyncio.sleep(POLL_S)

    async def _forgotten_s(self, user: str) -> float:
        """When a user was forgotten last, long ago when that is not remembered."""
        (packed,) = (await self.store.read([_forgotten_key(user)])).rows
        stored_s = _unpacked_s(packed) if packed is not None else -math.inf
        return max(stored_s, self._forgotten.get(user, -math.inf))

    async def _computed(self, asked: Asked, body: bytes, until: _Until, compute: Compute) -> RankAnswer:
        begun_s = self.now_s()
        try:
            answer = await compute(True)
        except BaseException:
            with contextlib.suppress(StoreError):
                await self.store.put(asked.key, _packed(_Entry("void")), 1)
            raise
        entry = _Entry("done", body, msgspec.json.encode(answer), begun_s)
        task = asyncio.create_task(self._keep(asked.key, _packed(entry)))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)
        # No longer than the caller waits: until it is kept, who asks again finds the claim.
        await asyncio.wait([task], timeout=max(0.0, until.keep_s - asyncio.get_running_loop().time()))
        return answer

    async def _keep(self, key: str, entry: bytes) -> None:
        try:
            await self.store.put(key, entry, self.keep_s)
        except StoreError:
            self.unkept += 1


def _forgotten_key(user: str) -> str:
    return "f:" + _digest(user.encode()).hex()


def _until(asked: Asked, now_s: float) -> _Until:
    look_s = asked.wait_s - min(ANSWER_S, asked.wait_s / 2.0)
    return _Until(now_s + look_s, now_s + asked.wait_s - SEND_S)


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


def _unpacked_s(packed: bytes) -> float:
    """An instant; what is none says that somebody wanted to be forgotten, so it is any."""
    try:
        return msgspec.msgpack.decode(packed, type=float)
    except msgspec.DecodeError:
        return math.inf
