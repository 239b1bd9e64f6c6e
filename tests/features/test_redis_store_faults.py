"""What a RedisStore answers when its server, or the way to it, misbehaves."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from features.circuit import Circuit
from features.embedded_store import EmbeddedServer
from features.errors import StoreError, StoreTimeout, StoreUnavailable
from features.redis_store import RedisStore, SlowLimits
from features.store import Commit, Snapshot
from features.store_url import parse_store_url
from tests.faults import BLACK_HOLE, NO_FAULT, Fault, StoreProxy

GENEROUS_MS = 20_000.0
SHORT_MS = 150.0
Story = Callable[[RedisStore, StoreProxy], Awaitable[None]]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    running = EmbeddedServer.start()
    yield running
    running.close()


@pytest.fixture
def client(server: EmbeddedServer) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(server.socket_path), protocol=2) as raw:
        raw.flushall()
        yield raw


def patient_circuit() -> Circuit:
    """One that stays closed in these tests."""
    return Circuit(failures_to_open=10**9, failure_share=1.0, window=10**6)


def state(store: RedisStore) -> str:
    """Asked anew each time, which a type checker does not know of a property."""
    assert store.health.circuit_state == store.circuit.state
    return store.circuit.state


def command(client: redis.Redis, *words: str) -> None:
    client.execute_command(*words)  # type: ignore[no-untyped-call]


def through_a_proxy(server: EmbeddedServer, story: Story, **options: Any) -> None:
    async def run() -> None:
        async with StoreProxy(server.socket_path) as proxy:
            settings = {"timeout_ms": GENEROUS_MS, "circuit": patient_circuit(), **options}
            store = RedisStore.connect(proxy.url, **settings)
            await store.clear()
            await store.commit(Commit(1, {f"u:{n}": (b"row %d" % n, 600) for n in range(10)}))
            try:
                await story(store, proxy)
            finally:
                proxy.behave(NO_FAULT)
                await store.close()

    asyncio.run(run())


def test_a_slow_answer_within_the_time_out_is_taken(server: EmbeddedServer) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        proxy.behave(Fault(delay_s=0.05))
        assert await store.read(["u:1"]) == Snapshot(1, (b"row 1",))
        assert store.health.timeouts == 0
        assert store.health.read_ms[-1] >= 50.0

    through_a_proxy(server, story)


@pytest.mark.parametrize("stall_after", [0, 1, 9, 20])
def test_an_answer_that_comes_too_late_is_never_taken_for_the_next_one(
    server: EmbeddedServer, stall_after: int
) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        for number in range(4):
            proxy.behave(Fault(stall_after=stall_after))
            with pytest.raises(StoreTimeout, match=r"read: redis://127\.0\.0\.1:\d+/0 did not answer in 150 ms"):
                await store.read([f"u:{number}"], timeout_ms=SHORT_MS)
            proxy.behave(NO_FAULT)  # what was held comes now
            other = number + 5
            assert await store.read([f"u:{other}"]) == Snapshot(1, (b"row %d" % other,))
        assert store.health.timeouts == 4

    through_a_proxy(server, story, connections=1)


def test_answers_are_not_mixed_up_when_requests_are_cancelled_at_any_moment(server: EmbeddedServer) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        async def read(number: int) -> None:
            snapshot = await store.read([f"u:{number}"])
            assert snapshot.rows == (b"row %d" % number,)

        for turn in range(60):
            tasks = [asyncio.create_task(read(number)) for number in range(10)]
            for _ in range(turn % 20):
                await asyncio.sleep(0)
            for task in tasks[:: 1 + turn % 3]:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert not [one for one in outcomes if isinstance(one, Exception)]
        await read(3)

    through_a_proxy(server, story, connections=3)


def test_a_black_hole_times_out_and_is_over_when_it_is_over(server: EmbeddedServer) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        proxy.behave(BLACK_HOLE)
        outcomes = await asyncio.gather(*(store.read(["u:1"], SHORT_MS) for _ in range(30)), return_exceptions=True)
        assert {type(one) for one in outcomes} == {StoreTimeout}
        proxy.behave(NO_FAULT)
        assert (await store.read(["u:1"])).rows == (b"row 1",)

    through_a_proxy(server, story, connections=4)


def test_a_connection_reset_in_the_middle_of_an_answer_is_unavailable_and_the_next_read_connects_anew(
    server: EmbeddedServer,
) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        for after in (0, 3, 12):
            proxy.behave(Fault(reset_after=after))
            with pytest.raises(StoreUnavailable, match="read: redis://"):
                await store.read(["u:1"])
            proxy.behave(NO_FAULT)
            assert (await store.read(["u:1"])).rows == (b"row 1",)
        assert store.health.failures == 3

    through_a_proxy(server, story)


def test_connections_that_ended_while_idle_are_replaced_without_an_error(server: EmbeddedServer) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        await asyncio.gather(*(store.read(["u:1"]) for _ in range(20)))
        before = proxy.accepted
        proxy.reset_all()
        await asyncio.sleep(0.1)
        assert (await store.read(["u:1"])).rows == (b"row 1",)
        assert store.health.failures == 0
        assert proxy.accepted == before + 1

    through_a_proxy(server, story)


def test_a_slow_handshake_is_not_started_over_by_every_read(server: EmbeddedServer) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        proxy.reset_all()
        await asyncio.sleep(0.05)
        before = proxy.accepted
        proxy.behave(BLACK_HOLE)
        for _ in range(5):
            with pytest.raises(StoreTimeout):
                await store.read(["u:1"], timeout_ms=40.0)
        assert proxy.accepted == before + 1
        proxy.behave(NO_FAULT)
        assert (await store.read(["u:1"])).rows == (b"row 1",)
        assert proxy.accepted == before + 1

    through_a_proxy(server, story, slow=SlowLimits(connect_ms=GENEROUS_MS))


def test_a_handshake_that_takes_too_long_is_given_up_and_the_next_read_connects_anew(server: EmbeddedServer) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        proxy.reset_all()
        await asyncio.sleep(0.05)
        proxy.behave(BLACK_HOLE)
        with pytest.raises(StoreUnavailable, match="no connection within 500 ms"):
            await store.read(["u:1"])
        proxy.behave(NO_FAULT)
        assert (await store.read(["u:1"])).rows == (b"row 1",)

    through_a_proxy(server, story, slow=SlowLimits(connect_ms=500.0))


def test_an_answer_held_back_does_not_hold_up_another_connection(server: EmbeddedServer) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        proxy.behave(BLACK_HOLE)
        stuck = asyncio.create_task(store.read(["u:1"]))
        await asyncio.sleep(0.05)
        proxy.behave(NO_FAULT)
        assert (await store.read(["u:2"])).rows == (b"row 2",)
        assert (await stuck).rows == (b"row 1",)

    through_a_proxy(server, story)


def test_the_circuit_opens_refuses_at_once_probes_and_closes(server: EmbeddedServer) -> None:
    now = [100.0]

    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        proxy.behave(Fault(refuse=True))
        proxy.reset_all()
        await asyncio.sleep(0.05)
        for _ in range(3):
            with pytest.raises(StoreError):
                await store.read(["u:1"])
        assert state(store) == "open"
        accepted, reads = proxy.accepted, store.health.reads
        for _ in range(20):
            with pytest.raises(StoreUnavailable, match="circuit open after: read: redis"):
                await store.read(["u:1"])
        with pytest.raises(StoreUnavailable, match="circuit open"):
            await store.claim("i:1", b"x", 60)
        with pytest.raises(StoreUnavailable, match="circuit open"):
            await store.put("i:1", b"x", 60)
        assert (proxy.accepted, store.health.reads, store.health.refused) == (accepted, reads, 22)
        proxy.behave(NO_FAULT)
        await store.ping()
        assert state(store) == "open"
        now[0] += 1.0
        assert (await store.read(["u:1"])).rows == (b"row 1",)
        assert state(store) == "closed"

    through_a_proxy(server, story, circuit=Circuit(failures_to_open=3, open_s=1.0), clock=lambda: now[0])


def test_a_cancelled_probe_does_not_block_the_next(server: EmbeddedServer) -> None:
    now = [0.0]

    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        proxy.behave(BLACK_HOLE)
        with pytest.raises(StoreTimeout):
            await store.claim("i:0", b"x", 60)
        now[0] += 10.0
        probe = asyncio.create_task(store.read(["u:1"]))
        await asyncio.sleep(0.02)
        assert state(store) == "half_open"
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        proxy.behave(NO_FAULT)
        await asyncio.sleep(0.05)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "_timeout_ms", GENEROUS_MS)
            assert (await store.read(["u:1"])).rows == (b"row 1",)
        assert state(store) == "closed"

    circuit = Circuit(failures_to_open=1, open_s=1.0, probe_s=1e9)
    through_a_proxy(server, story, circuit=circuit, clock=lambda: now[0], timeout_ms=SHORT_MS)


def test_callers_in_a_hurry_do_not_open_the_circuit(server: EmbeddedServer) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        proxy.behave(BLACK_HOLE)
        for _ in range(10):
            with pytest.raises(StoreTimeout):
                await store.read(["u:1"], timeout_ms=1.0)
            with pytest.raises(StoreTimeout):
                await store.read(["u:1"], timeout_ms=0.0)
        assert state(store) == "closed"
        assert store.health.timeouts == 20

    through_a_proxy(server, story, circuit=Circuit(failures_to_open=2))


def test_slow_operations_have_limits_of_their_own(server: EmbeddedServer) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "commit": lambda: store.commit(Commit(2)),
            "population": store.population,
            "clear": store.clear,
            "ping": store.ping,
        }
        for name, call in calls.items():
            proxy.behave(BLACK_HOLE)
            with pytest.raises(StoreTimeout, match=f"{name}: .* in 2.. ms"):
                await call()
            proxy.behave(NO_FAULT)
            await store.read([])
        assert store.health.timeouts == 0

    limits = SlowLimits(connect_ms=GENEROUS_MS, ping_ms=200.0, commit_ms=210.0, population_ms=220.0, clear_ms=230.0)
    through_a_proxy(server, story, slow=limits)


def test_a_commit_is_all_or_nothing_wherever_its_connection_breaks(server: EmbeddedServer) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        for turn, after in enumerate((0, 2, 5, 9, 14, 30, 60), start=2):
            rows = {f"u:{n}": (b"%d" % turn, 600) for n in range(10)}
            proxy.behave(Fault(reset_after=after))
            with pytest.raises(StoreUnavailable):
                await store.commit(Commit(turn, rows, {("t", "a"): b"%d" % turn}))
            proxy.behave(NO_FAULT)
            snapshot = await store.read([*rows])
            expected = b"%d" % turn if snapshot.applied == turn else snapshot.rows[0]
            assert set(snapshot.rows) == {expected}
            await store.commit(Commit(turn, rows, {("t", "a"): b"%d" % turn}))

    async def uniform(store: RedisStore, proxy: StoreProxy) -> None:
        await store.commit(Commit(1, {f"u:{n}": (b"1", 600) for n in range(10)}))
        await story(store, proxy)

    through_a_proxy(server, uniform)


def test_a_commit_that_the_server_gets_only_after_the_next_one_is_void(server: EmbeddedServer) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        direct = RedisStore.connect(server.url, timeout_ms=GENEROUS_MS)
        watched = Fault(hold_requests=True)
        exchange_one = len(b"+OK\r\n")

        async def hold_after_watch() -> None:
            while proxy._passed < exchange_one:
                await asyncio.sleep(0)
            proxy.behave(watched)

        proxy.behave(Fault())
        holding = asyncio.create_task(hold_after_watch())
        late = asyncio.create_task(store.commit(Commit(2, {"u:1": (b"late", 600)})))
        await holding
        await asyncio.sleep(0.05)
        assert (await direct.read([])).applied == 1, "the test did not hold the commit back"
        await direct.commit(Commit(3, {"u:1": (b"newer", 600)}))
        proxy.behave(NO_FAULT)
        with pytest.raises(StoreUnavailable, match="another writer"):
            await late
        assert await direct.read(["u:1"]) == Snapshot(3, (b"newer",))
        await direct.close()

    through_a_proxy(server, story)


def test_a_full_server_refuses_the_commit_by_name_and_goes_on_reading(
    server: EmbeddedServer, client: redis.Redis
) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        used = int(client.info("memory")["used_memory"])
        client.config_set("maxmemory", used + 100_000)
        try:
            with pytest.raises(StoreUnavailable, match=r"commit: .*maxmemory"):
                for applied in range(2, 100):
                    await store.commit(Commit(applied, {f"u:x{applied}": (b"x" * 50_000, 600)}))
            snapshot = await store.read(["u:1"])
            assert snapshot.rows == (b"row 1",)
            assert client.keys("na:u:x*") == [] or snapshot.applied != 1
        finally:
            client.config_set("maxmemory", 0)

    through_a_proxy(server, story)


def test_a_server_that_has_become_read_only_is_named(server: EmbeddedServer, client: redis.Redis) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        command(client, "REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(StoreUnavailable, match="read only"):
                await store.put("i:1", b"x", 60)
            assert (await store.read(["u:1"])).rows == (b"row 1",)
        finally:
            command(client, "REPLICAOF", "NO", "ONE")

    through_a_proxy(server, story)


def test_a_foreign_value_under_our_keys_is_named(server: EmbeddedServer, client: redis.Redis) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        client.set("na:applied", "many")
        with pytest.raises(StoreUnavailable, match=r"na:applied holds b'many'"):
            await store.read([])

    through_a_proxy(server, story)


def test_a_stopped_server_times_out_and_a_continued_one_answers_rightly() -> None:
    server = EmbeddedServer.start()

    async def story() -> None:
        store = RedisStore.connect(server.url, timeout_ms=GENEROUS_MS, circuit=patient_circuit())
        await store.commit(Commit(1, {"u:1": (b"1", 60), "u:2": (b"2", 60)}))
        with redis.Redis(unix_socket_path=str(server.socket_path)) as raw:
            pid = int(raw.info("server")["process_id"])
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreTimeout):
                await store.read(["u:1"], timeout_ms=SHORT_MS)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (await store.read(["u:2"])).rows == (b"2",)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(StoreUnavailable):
            for _ in range(200):
                await store.read(["u:1"])
                await asyncio.sleep(0.01)
        await store.close()

    try:
        asyncio.run(story())
    finally:
        server.close()


def test_nobody_listening_is_unavailable_with_the_address(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening
        port = taken.getsockname()[1]

        async def story() -> None:
            for url in (f"redis://127.0.0.1:{port}", f"unix://{tmp_path}/none"):
                store = RedisStore.connect(url, timeout_ms=GENEROUS_MS)
                with pytest.raises(StoreUnavailable, match="ping: "):
                    await store.ping()
                assert store.health.last_error is not None
                await store.close()

        asyncio.run(story())


SECRET = "hunter#2 ü/:@"
QUOTED = "hunter%232%20%C3%BC%2F%3A%40"


def test_a_wrong_password_is_named_and_never_shown(server: EmbeddedServer, client: redis.Redis) -> None:
    command(client, "ACL", "SETUSER", "app", "on", ">right", "~*", "+@all")

    async def story(url: str) -> str:
        store = RedisStore.connect(url, timeout_ms=GENEROUS_MS)
        with pytest.raises(StoreUnavailable, match=r"WRONGPASS|password") as caught:
            await store.read(["u:1"])
        await store.close()
        said = "".join(traceback.format_exception(caught.value))
        return f"{said} {store!r} {vars(store.health)} {store._address!r}"

    for url in (
        f"unix://app:{QUOTED}@{server.socket_path}",
        f"unix://{server.socket_path}?username=app&password={QUOTED}",
    ):
        said = asyncio.run(story(url))
        assert "hunter" not in said
    command(client, "ACL", "DELUSER", "app")


def test_the_right_password_opens_and_a_missing_right_is_named(server: EmbeddedServer, client: redis.Redis) -> None:
    command(client, "ACL", "SETUSER", "app", "on", f">{SECRET}", "~na:*", "+@all", "-set")

    async def story() -> None:
        store = RedisStore.connect(f"unix://app:{QUOTED}@{server.socket_path}", timeout_ms=GENEROUS_MS)
        assert await store.read(["u:1"]) == Snapshot(None, (None,))
        with pytest.raises(StoreUnavailable, match=r"put: .*permission"):
            await store.put("i:1", b"x", 60)
        await store.close()
        foreign = RedisStore.connect(f"unix://app:{QUOTED}@{server.socket_path}", prefix="xx", timeout_ms=GENEROUS_MS)
        with pytest.raises(StoreUnavailable, match=r"read: .*permission"):
            await foreign.read(["u:1"])
        await foreign.close()

    asyncio.run(story())
    command(client, "ACL", "DELUSER", "app")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://localhost", "scheme 'http'"),
        ("", "scheme ''"),
        ("/run/store.sock", "scheme ''"),
        ("unix://", "absolute path"),
        ("redis://localhost/seven", "db 'seven'"),
        ("redis://localhost?db=-1", "db '-1'"),
        ("redis://localhost?socket_timeout=0", "option 'socket_timeout'"),
        ("redis://localhost?ssl_ca_certs=x", "option 'ssl_ca_certs'"),
        ("redis://user:hunter#2@localhost", "not a port"),
        ("redis://user:hunter2@localhost:port", "not a port"),
        ("redis://user:hunter2@[::1", "not a port, or the host is not one"),
        ("redis://localhost:99999", "not a port"),
    ],
)
def test_an_unusable_url_is_refused_with_what_is_wrong_and_no_secret(url: str, named: str) -> None:
    with pytest.raises(StoreUnavailable, match=named) as caught:
        RedisStore.connect(url)
    assert "hunter" not in "".join(traceback.format_exception(caught.value))


def test_a_url_says_where_and_who() -> None:
    url = parse_store_url(f"rediss://me:{QUOTED}@[::1]:7000/3?ssl_cert_reqs=none")
    assert (url.host, url.port, url.db, url.username, url.password) == ("::1", 7000, 3, "me", SECRET)
    assert url.tls == (("ssl_cert_reqs", "none"),)
    assert str(url) == "rediss://[::1]:7000/3"
    assert str(parse_store_url("redis://")) == "redis://localhost:6379/0"
    assert str(parse_store_url("unix:///a%20b/s?db=2")) == "unix:///a b/s?db=2"


def test_a_server_that_only_reads_refuses_writes_without_opening_the_circuit_or_losing_connections(
    server: EmbeddedServer, client: redis.Redis
) -> None:
    async def story(store: RedisStore, proxy: StoreProxy) -> None:
        before = proxy.accepted
        command(client, "CONFIG", "SET", "min-replicas-to-write", "1")
        try:
            for number in range(20):
                for write in (store.claim(f"a:{number}", b"x", 60), store.put(f"a:{number}", b"x", 60)):
                    with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
                        await write
                assert (await store.read(["u:1"])).rows == (b"row 1",)
        finally:
            command(client, "CONFIG", "SET", "min-replicas-to-write", "0")
        assert (state(store), store.health.failures, proxy.accepted) == ("closed", 40, before)
        assert await store.claim("a:1", b"x", 60) is None

    through_a_proxy(server, story, circuit=Circuit(failures_to_open=2, window=2))
