"""A store that is slow or broken under steady load: every request is answered, in time, and told why it is less."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from features.embedded_store import EmbeddedServer
from features.redis_store import RedisStore
from ranker.answers import RankAnswer
from ranker.build import Running
from tests.faults import BLACK_HOLE, NO_FAULT, Fault, StoreProxy
from tests.features.oracle import assert_holds_the_log
from tests.features.test_embedded_store import ask, row_keys
from tests.ranker.faults.interrupted import kill_store
from tests.ranker.faults.loaded import BUDGET_MS, Load, applied, connect, rank, serving
from tests.ranker.online import run
from tests.ranker.test_replay_exact import assert_replays

TIMEOUT, UNAVAILABLE, STALE, UNVERIFIED = "features:timeout", "features:unavailable", "features:stale", "id:unverified"
PER_S = 60.0


@dataclass(frozen=True)
class Place:
    """What a fault can be done to."""

    proxy: StoreProxy
    server: EmbeddedServer


@dataclass(frozen=True)
class Case:
    """A fault and what must be said while it lasts.

    Args:
        begin: makes it; `end` takes it back.
        each: every answer has one of these.
        some: these are said at least once.
        never: these are not said.
        opens: whether the circuit must have opened.
        rebuilds: how often the store must have been filled from the log.
    """

    name: str
    begin: Callable[[Place], Awaitable[object]]
    end: Callable[[Place], Awaitable[object]]
    each: frozenset[str] = frozenset()
    some: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    opens: bool = True
    rebuilds: int = 0


def proxied(fault: Fault) -> Callable[[Place], Awaitable[None]]:
    async def begin(place: Place) -> None:
        place.proxy.behave(fault)
        if fault.refuse:
            place.proxy.reset_all()

    return begin


def commanded(command: str) -> Callable[[Place], Awaitable[None]]:
    async def begin(place: Place) -> None:
        assert (await asyncio.to_thread(ask, place.server.socket_path, command)).startswith("+OK")

    return begin


async def killed(place: Place) -> None:
    await asyncio.to_thread(kill_store, place.server.socket_path)


async def nothing(place: Place) -> None:
    """It is over by itself."""


READ_ONLY = "CONFIG SET min-replicas-to-write"
DOWN = frozenset({TIMEOUT, UNAVAILABLE})
CASES = [
    Case("slow", proxied(Fault(delay_s=0.4)), proxied(NO_FAULT), DOWN, DOWN),
    Case("a stall in an answer", proxied(Fault(stall_after=30)), proxied(NO_FAULT), DOWN, DOWN),
    Case("a reset in an answer", proxied(Fault(reset_after=30)), proxied(NO_FAULT), frozenset({UNAVAILABLE}),
         frozenset({UNAVAILABLE}), frozenset({TIMEOUT})),
    Case("a black hole", proxied(BLACK_HOLE), proxied(NO_FAULT), DOWN, DOWN | {STALE, UNVERIFIED}),
    Case("requests not delivered", proxied(Fault(hold_requests=True)), proxied(NO_FAULT), DOWN, DOWN),
    Case("refused", proxied(Fault(refuse=True)), proxied(NO_FAULT), frozenset({UNAVAILABLE}),
         frozenset({UNAVAILABLE, STALE, UNVERIFIED}), frozenset({TIMEOUT})),
    Case("read-only", commanded(f"{READ_ONLY} 1"), commanded(f"{READ_ONLY} 0"), frozenset(),
         frozenset({STALE, UNVERIFIED}), DOWN, opens=False),
    # The applier may have filled it again before anyone saw that.
    Case("emptied", commanded("FLUSHALL"), nothing, opens=False, rebuilds=1),
    Case("killed, and back empty", killed, nothing, frozenset(), frozenset({UNAVAILABLE}), opens=False, rebuilds=1),
]  # fmt: skip


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    running = EmbeddedServer.start()
    yield running
    running.close()


@asynccontextmanager
async def behind_a_proxy(folder: Path, server: EmbeddedServer) -> AsyncIterator[tuple[Running, RedisStore, Place]]:
    async with StoreProxy(server.socket_path) as proxy:
        store = connect(proxy.url)
        try:
            async with serving(folder, store) as running:
                yield running, store, Place(proxy, server)
        finally:
            proxy.behave(NO_FAULT)
            await store.close()


def assert_said(case: Case, answers: list[RankAnswer]) -> None:
    said = [set(answer.degraded) for answer in answers]
    counts = Counter(reason for reasons in said for reason in reasons)
    assert set(counts) >= case.some, counts
    assert not set(counts) & case.never, counts
    # Those that were on their way when it began may have been served before it.
    without = sum(not reasons & case.each for reasons in said) if case.each else 0
    assert without <= 2, (without, counts)
    assert all(answer.items for answer in answers)


async def recovered(running: Running, store: RedisStore) -> None:
    """Rankings are whole again, by themselves."""
    async with asyncio.timeout(15.0):
        while (await rank(running)).degraded or store.circuit.state != "closed":
            await asyncio.sleep(0.02)


async def whole(load: Load) -> None:
    """All answers of a stretch are whole; on a busy machine a single one may be late, but not for ever."""
    async with asyncio.timeout(15.0):
        while any(answer.degraded for answer in await load.send(0.2)):
            pass


async def story(case: Case, tmp_path: Path, server: EmbeddedServer, seconds: float, per_s: float) -> Load:
    async with behind_a_proxy(tmp_path, server) as (running, store, place):
        load = Load(running, per_s)
        await whole(load)
        openings, rebuilds = store.circuit.openings, running.applier.counts.rebuilds
        await case.begin(place)
        during = await load.send(seconds)
        await case.end(place)
        assert_said(case, during)
        await recovered(running, store)
        await whole(load)
        assert not case.opens or store.circuit.openings > openings
        assert running.applier.counts.rebuilds - rebuilds == case.rebuilds
        await applied(running)
        plain = RedisStore.connect(server.url, timeout_ms=5000.0)
        try:
            await assert_holds_the_log(plain, tmp_path / "log", row_keys(server.socket_path))
        finally:
            await plain.close()
        assert_replays(tmp_path / "log", least=10)
        return load


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_of_the_store_degrades_answers_and_ends_by_itself(
    case: Case, tmp_path: Path, server: EmbeddedServer
) -> None:
    async def work() -> None:
        load = await story(case, tmp_path, server, 1.0, PER_S)
        assert load.late <= 1, [a.timings_ms for _, a in load.answers if a.timings_ms["total"] > BUDGET_MS]

    run(work(), limit_s=60.0)


@pytest.mark.slow
def test_of_thousands_under_all_faults_at_most_one_in_a_thousand_is_late(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    async def work() -> None:
        late = answers = 0
        for number, case in enumerate(CASES):
            await asyncio.to_thread(ask, server.socket_path, "FLUSHALL")
            load = await story(case, tmp_path / str(number), server, 6.0, 100.0)
            late, answers = late + load.late, answers + len(load.answers)
        print(f"{late} of {answers} ended after their budget of {BUDGET_MS:g} ms")
        assert answers > 2000
        assert late <= answers / 1000, f"{late} of {answers}"

    run(work(), limit_s=300.0)
