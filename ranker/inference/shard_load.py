"""One load: the manifest's word, the stream against it, the format, and only then a shard."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from ranker.inference.shard_errors import (
    ChecksumKind,
    ChecksumMismatch,
    LoadFailed,
    ManifestRefused,
    ShardError,
    SizeMismatch,
    UnknownShard,
)
from ranker.inference.shard_key import Check, ShardKey, ShardSource, State
from ranker.inference.shard_sink import Kept, Sink

INLINE_BYTES = 1 << 16
"""Chunks up to this size are hashed on the event loop (some 50 µs), larger ones in a thread."""

MAX_EMPTY_CHUNKS = 1000
"""So many empty chunks in a row are a source that will never end."""

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the manifest says about a shard, before anything is read.

    Args:
        sha256: lower-case hexadecimal.
    """

    key: ShardKey
    nbytes: int
    sha256: str


@dataclass(slots=True)
class LoadTrace:
    """How far a load is and where its time went.

    Args:
        transfer_s: waiting for the source.
        verify_s: hashing, storing, and checking the format.
    """

    state: State = State.LOADING
    transfer_s: float = 0.0
    verify_s: float = 0.0


@dataclass(frozen=True)
class Load:
    """Everything a load needs; it knows nothing of who waits for it or of what else is in memory."""

    claim: Claim
    source: ShardSource
    open_sink: Callable[[Claim], Sink]
    check: Check | None
    clock: Callable[[], float]
    trace: LoadTrace = field(default_factory=LoadTrace)

    async def run(self) -> Kept:
        """The verified shard.

        Raises:
            LoadFailed: whatever went wrong, with its cause; nothing is left behind.
        """
        try:
            return await self._verified()
        except ShardError:
            raise
        except Exception as error:
            raise LoadFailed(f"{self.claim.key}: {type(error).__name__}: {error}") from error

    async def _verified(self) -> Kept:
        sink = self.open_sink(self.claim)
        try:
            await self._gather(sink)
            if self.check is not None:
                await self._timed(self.claim.nbytes, partial(self.check, self.claim.key, sink.content()))
            self.trace.state = State.VERIFIED
            return sink.keep()  # no await from here on, so a cancel cannot come between
        except BaseException:
            sink.discard()
            raise

    async def _gather(self, sink: Sink) -> None:
        """Hashes while it stores, and stops at the first byte too many."""
        claim, taken, digest = self.claim, 0, hashlib.sha256()

        def take(chunk: memoryview) -> None:
            digest.update(chunk)
            sink.write(chunk)

        async with self._chunks() as chunks:
            async for chunk in chunks:
                taken += chunk.nbytes
                if taken > claim.nbytes:
                    raise SizeMismatch(f"{claim.key}: the source gave {taken} bytes or more, not {claim.nbytes}")
                await self._timed(chunk.nbytes, partial(take, chunk))
        if taken < claim.nbytes:
            raise SizeMismatch(f"{claim.key}: the source gave {taken} bytes, not {claim.nbytes}")
        if digest.hexdigest() != claim.sha256:
            raise ChecksumMismatch(f"{claim.key}: sha256 is {digest.hexdigest()}, not {claim.sha256}")

    @asynccontextmanager
    async def _chunks(self) -> AsyncIterator[AsyncIterator[memoryview]]:
        """The source's chunks as bytes; the source is closed even when they are not read to the end."""
        stream = self.source.chunks(self.claim.key)
        if inspect.isawaitable(stream):  # a coroutine that returns the iterator will do too
            stream = await stream
        try:
            async with aclosing(self._views(aiter(stream))) as views:
                yield views
        finally:
            if (close := getattr(stream, "aclose", None)) is not None:
                await close()

    async def _views(self, stream: AsyncIterator[bytes]) -> AsyncGenerator[memoryview, None]:
        empty = 0
        while True:
            asked_s = self.clock()
            try:
                chunk = await anext(stream)
            except StopAsyncIteration:
                return
            finally:
                self.trace.transfer_s += self.clock() - asked_s
            empty = 0 if len(chunk) else empty + 1
            if empty > MAX_EMPTY_CHUNKS:
                raise LoadFailed(f"{self.claim.key}: the source gave {empty} empty chunks in a row")
            yield memoryview(chunk).cast("B")
            await asyncio.sleep(0)  # a source that is always ready must not keep the loop for itself

    async def _timed(self, nbytes: int, work: Callable[[], None]) -> None:
        started_s = self.clock()
        try:
            await (_inline(work) if nbytes <= INLINE_BYTES else _in_thread(work))
        finally:
            self.trace.verify_s += self.clock() - started_s


def claim_of(source: ShardSource, key: ShardKey) -> Claim:
    """What the manifest says.

    Raises:
        UnknownShard: the source has no such shard.
        LoadFailed: it does not answer, or with something that cannot be.
    """
    try:
        nbytes: object = source.size(key)
        sha256: object = source.sha256(key)
    except ShardError:
        raise
    except LookupError as error:
        raise UnknownShard(f"{key}: the source has no such shard: {error}") from error
    except Exception as error:
        raise LoadFailed(f"{key}: {type(error).__name__}: {error}") from error
    if not isinstance(nbytes, int) or isinstance(nbytes, bool) or nbytes < 0:
        raise ManifestRefused(f"{key}: size {nbytes!r} is not a number of bytes")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256.lower()):
        raise ChecksumKind(f"{key}: sha256 {str(sha256)[:72]!r} is not 64 hexadecimal digits")
    return Claim(key, nbytes, sha256.lower())


async def _inline(work: Callable[[], None]) -> None:
    work()


async def _in_thread(work: Callable[[], None]) -> None:
    """Runs it in a thread and, when cancelled, waits for the thread: its memory must not outlive what counts it."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()
        raise
