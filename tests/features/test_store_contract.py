"""What every feature store does; and what only a server can show."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.embedded_store import EmbeddedServer
from features.errors import StoreUnavailable
from features.memory_store import MemoryStore
from features.redis_store import RedisStore
from features.store import ABSENT, Commit, FeatureStore, Snapshot

GENEROUS_MS = 10_000.0
HOSTILE = ["", "a b", "a\nb", "\r\n", "\x1f", "a\x1fb", "\x00", "*", "a[b]?\\*", "😀", "ümlaut", "\ud800", "x" * 5000]
Story = Callable[[FeatureStore], Awaitable[None]]


@dataclass
class Bench:
    """A kind of store, fresh for each story; `later` lets its time pass."""

    name: str
    server: EmbeddedServer | None = None
    now: list[float] = field(default_factory=lambda: [0.0])

    def open(self, prefix: str = "na") -> FeatureStore:
        if self.server is None:
            return MemoryStore(lambda: self.now[0])
        return RedisStore.connect(self.server.url, prefix=prefix, timeout_ms=GENEROUS_MS)

    async def later(self, seconds: float) -> None:
        self.now[0] += seconds
        if self.server is not None:
            await asyncio.sleep(seconds)

    def run(self, story: Story) -> None:
        async def on_a_fresh_store() -> None:
            store = self.open()
            await store.clear()
            try:
                await story(store)
            finally:
                await store.close()

        asyncio.run(on_a_fresh_store())


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    running = EmbeddedServer.start()
    yield running
    running.close()


@pytest.fixture(params=["memory", "embedded"])
def bench(request: pytest.FixtureRequest, server: EmbeddedServer) -> Bench:
    return Bench(request.param, server if request.param == "embedded" else None)


def raw(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(server.socket_path), protocol=2)


def test_a_store_never_filled_knows_no_offset_and_no_rows(bench: Bench) -> None:
    async def story(store: FeatureStore) -> None:
        await store.ping()
        assert await store.read(["u:1", "s:1"]) == Snapshot(None, (None, None))
        assert await store.read([]) == Snapshot(None, ())
        assert await store.population() == {}

    bench.run(story)


def test_rows_come_back_in_the_order_asked_for_with_the_offset(bench: Bench) -> None:
    async def story(store: FeatureStore) -> None:
        await store.commit(Commit(7, {"u:1": (b"\x00one\r\n", 60), "u:2": (b"", 60)}))
        assert await store.read(["u:2", "u:3", "u:1", "u:2"]) == Snapshot(7, (b"", None, b"\x00one\r\n", b""))
        assert await store.read([]) == Snapshot(7, ())

    bench.run(story)


def test_a_commit_replaces_deletes_and_leaves_the_rest(bench: Bench) -> None:
    async def story(store: FeatureStore) -> None:
        await store.commit(Commit(1, {"u:1": (b"a", 60), "u:2": (b"b", 60), "u:3": (b"c", 60)}))
        await store.commit(Commit(2, {"u:1": (b"A", 60), "u:2": None, "u:9": None}))
        assert await store.read(["u:1", "u:2", "u:3"]) == Snapshot(2, (b"A", None, b"c"))
        await store.commit(Commit(0))
        assert (await store.read([])).applied == 0

    bench.run(story)


def test_a_row_lives_as_long_as_its_last_write_said(bench: Bench) -> None:
    async def story(store: FeatureStore) -> None:
        await store.commit(Commit(1, {"u:1": (b"a", 1), "u:2": (b"b", 1), "u:3": (b"c", 60)}))
        await store.commit(Commit(2, {"u:2": (b"B", 60)}))
        await bench.later(1.1)
        assert await store.read(["u:1", "u:2", "u:3"]) == Snapshot(2, (None, b"B", b"c"))

    bench.run(story)


def test_cells_of_any_name_come_back_as_they_were(bench: Bench) -> None:
    cells = {(table, action): b"%d" % len(action) for table in ("a", "a:b", "*", "?", "") for action in HOSTILE}

    async def story(store: FeatureStore) -> None:
        await store.commit(Commit(1, cells=cells))
        assert await store.population() == cells
        await store.commit(Commit(2, cells=dict.fromkeys(cells)))
        assert await store.population() == {}

    bench.run(story)


def test_a_commit_on_top_of_something_else_changes_nothing(bench: Bench) -> None:
    async def story(store: FeatureStore) -> None:
        for wrong in (0, 5):
            with pytest.raises(StoreUnavailable, match="applied"):
                await store.commit(Commit(6, {"u:1": (b"a", 60)}, before=wrong))
        await store.commit(Commit(5, {"u:1": (b"b", 60)}, before=ABSENT))
        for wrong in (ABSENT, 0, 4, 6):
            with pytest.raises(StoreUnavailable, match="applied"):
                await store.commit(Commit(6, {"u:1": (b"c", 60)}, {("t", "x"): b"1"}, before=wrong))
        assert await store.read(["u:1"]) == Snapshot(5, (b"b",))
        assert await store.population() == {}
        await store.commit(Commit(6, {"u:1": (b"d", 60)}, before=5))
        assert await store.read(["u:1"]) == Snapshot(6, (b"d",))

    bench.run(story)


@pytest.mark.parametrize("table", ["a", "a*", "[a]", "?", "\\", "^", "", "a-z", "ü"])
def test_deleting_a_table_takes_its_cells_and_no_others(bench: Bench, table: str) -> None:
    others = {"a", "a*", "[a]", "?", "\\", "^", "", "a-z", "ü", "aa", "b", "a:"} - {table}
    kept = [(name, action) for name in others for action in ("x", "a", table)]
    cells: dict[tuple[str, str], bytes | None] = dict.fromkeys(kept, b"1")

    async def story(store: FeatureStore) -> None:
        await store.commit(Commit(1, cells={**cells, **{(table, action): b"2" for action in HOSTILE}}))
        await store.commit(Commit(2, tables=[table]))
        assert await store.population() == cells
        await store.commit(Commit(3, tables=[table, "never there"]))
        assert await store.population() == cells

    bench.run(story)


def test_a_commit_deletes_tables_before_it_sets_cells(bench: Bench) -> None:
    async def story(store: FeatureStore) -> None:
        await store.commit(Commit(1, cells={("t", "old"): b"1", ("t", "both"): b"1"}))
        await store.commit(Commit(2, cells={("t", "both"): b"2", ("t", "new"): b"2"}, tables=["t"]))
        assert await store.population() == {("t", "both"): b"2", ("t", "new"): b"2"}

    bench.run(story)


def test_many_cells_and_rows_go_through_in_one_commit(bench: Bench) -> None:
    cells: dict[tuple[str, str], bytes | None] = {("t", str(number)): b"%d" % number for number in range(12_001)}

    async def story(store: FeatureStore) -> None:
        await store.commit(Commit(1, {f"u:{n}": (b"r" * 100, 60) for n in range(3000)}, cells))
        assert await store.population() == cells
        assert all((await store.read([f"u:{n}" for n in range(3000)])).rows)
        await store.commit(Commit(2, {f"u:{n}": None for n in range(3000)}, tables=["t"]))
        assert await store.population() == {}
        assert not any((await store.read([f"u:{n}" for n in range(3000)])).rows)

    bench.run(story)


def test_the_first_claim_wins_until_it_expires(bench: Bench) -> None:
    async def story(store: FeatureStore) -> None:
        assert await store.claim("i:1", b"first", 1) is None
        assert await store.claim("i:1", b"second", 60) == b"first"
        assert await store.claim("i:1", b"third", 60) == b"first"
        await bench.later(1.1)
        assert await store.claim("i:1", b"fourth", 60) is None

    bench.run(story)


def test_of_many_claims_at_once_one_wins(bench: Bench) -> None:
    async def story(store: FeatureStore) -> None:
        found = await asyncio.gather(*(store.claim("i:1", b"%d" % number, 60) for number in range(50)))
        assert found.count(None) == 1
        winner = b"%d" % found.index(None)
        assert set(found) == {None, winner}

    bench.run(story)


def test_put_sets_a_key_that_read_and_claim_see_and_that_expires(bench: Bench) -> None:
    async def story(store: FeatureStore) -> None:
        await store.put("i:1", b"answer", 1)
        assert await store.claim("i:1", b"other", 60) == b"answer"
        assert (await store.read(["i:1"])).rows == (b"answer",)
        await bench.later(1.1)
        assert (await store.read(["i:1"])).rows == (None,)

    bench.run(story)


def test_clear_leaves_a_store_that_was_never_filled(bench: Bench) -> None:
    async def story(store: FeatureStore) -> None:
        await store.commit(Commit(5, {f"u:{n}": (b"a", 60) for n in range(2500)}, {("t", "a"): b"1"}))
        await store.put("i:1", b"x", 60)
        await store.clear()
        assert await store.read(["u:1", "u:2499", "i:1"]) == Snapshot(None, (None, None, None))
        assert await store.population() == {}

    bench.run(story)


@pytest.mark.parametrize(
    ("commit", "named"),
    [
        (Commit(1, {"u:1": (b"new", 60), "u:2": (b"b", 0)}), "'u:2'.* 0 s"),
        (Commit(1, {"u:1": (b"new", 60), "u:2": (b"b", -1)}), "'u:2'.* -1 s"),
        (Commit(1, {"u:1": (b"new", 60), "u:2": (b"b", 1.5)}), r"'u:2'.* 1\.5 s"),  # type: ignore[dict-item]
        (Commit(1, {"u:1": (b"new", 60)}, {("a\x1fb", "c"): b"1"}), "separator"),
        (Commit(1, {"u:1": (b"new", 60)}, tables=["a\x1fb"]), "separator"),
        (Commit(-1, {"u:1": (b"new", 60)}), "applied -1"),
    ],
)
def test_an_impossible_commit_is_named_and_changes_nothing(bench: Bench, commit: Commit, named: str) -> None:
    async def story(store: FeatureStore) -> None:
        await store.commit(Commit(3, {"u:1": (b"old", 60)}))
        with pytest.raises(ValueError, match=named):
            await store.commit(commit)
        assert await store.read(["u:1"]) == Snapshot(3, (b"old",))

    bench.run(story)


@pytest.mark.parametrize("ttl_s", [0, -5, 10**12])
def test_an_impossible_time_to_live_is_named(bench: Bench, ttl_s: int) -> None:
    async def story(store: FeatureStore) -> None:
        with pytest.raises(ValueError, match=f"'i:1'.*{ttl_s}"):
            await store.claim("i:1", b"x", ttl_s)
        with pytest.raises(ValueError, match=f"'i:1'.*{ttl_s}"):
            await store.put("i:1", b"x", ttl_s)

    bench.run(story)


def test_a_closed_store_says_so(bench: Bench) -> None:
    async def story() -> None:
        store = bench.open()
        await store.ping()
        await store.close()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.read([]),
            lambda: store.commit(Commit(1)),
            store.population,
            store.clear,
            lambda: store.claim("i:1", b"", 1),
            lambda: store.put("i:1", b"", 1),
            store.ping,
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match="closed"):
                await call()
        await store.close()

    asyncio.run(story())


names = st.sampled_from(["a", "b", "*", "a*"])
rows = st.dictionaries(
    st.sampled_from(["u:1", "u:2", "s:1"]), st.none() | st.tuples(st.binary(max_size=3), st.just(60)), max_size=3
)
commits = st.builds(
    Commit,
    applied=st.integers(0, 9),
    rows=rows,
    cells=st.dictionaries(st.tuples(names, names), st.none() | st.binary(max_size=2), max_size=4),
    tables=st.lists(names, max_size=2),
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(commits, max_size=8))
def test_both_stores_hold_the_same_after_any_commits(server: EmbeddedServer, history: list[Commit]) -> None:
    async def story() -> None:
        memory, real = MemoryStore(), Bench("embedded", server).open()
        await real.clear()
        for commit in history:
            await memory.commit(commit)
            await real.commit(commit)
        keys = ["u:1", "u:2", "s:1"]
        assert await real.read(keys) == await memory.read(keys)
        assert await real.population() == await memory.population()
        await real.close()

    asyncio.run(story())


def test_every_key_on_the_server_expires_or_is_one_of_two(server: EmbeddedServer) -> None:
    async def story(store: FeatureStore) -> None:
        await store.commit(Commit(5, {"u:1": (b"a", 60), "r:x": (b"b", 7)}, {("t", "a"): b"1", ("u", "b"): b"2"}))
        await store.commit(Commit(6, {"u:1": (b"b", 61)}))
        await store.put("i:1", b"x", 62)
        await store.claim("i:2", b"x", 63)

    Bench("embedded", server).run(story)
    with raw(server) as client:
        life = {key: client.ttl(key) for key in client.keys("*")}
    bounded = {b"na:applied", b"na:pop"}
    assert set(life) == {b"na:u:1", b"na:r:x", b"na:i:1", b"na:i:2"} | bounded
    assert all(0 < life[key] <= 63 for key in set(life) - bounded)
    assert {life[key] for key in bounded} == {-1}


def test_a_read_sees_rows_and_offset_of_one_commit_while_another_writes(server: EmbeddedServer) -> None:
    keys = [f"u:{number}" for number in range(20)]

    async def write(until: asyncio.Event) -> int:
        writer = Bench("embedded", server).open()
        applied = 1
        while not until.is_set():
            applied += 1
            row = (b"%d" % applied, 60)
            await writer.commit(Commit(applied, dict.fromkeys(keys, row), {("t", key): row[0] for key in keys}))
        await writer.close()
        return applied

    async def story(store: FeatureStore) -> None:
        await store.commit(Commit(1, dict.fromkeys(keys, (b"1", 60))))
        enough = asyncio.Event()
        writing = asyncio.create_task(write(enough))
        seen = set()
        for _ in range(400):
            snapshot = await store.read(keys)
            assert set(snapshot.rows) == {b"%d" % (snapshot.applied or 0)}
            seen.add(snapshot.applied)
        enough.set()
        await writing
        assert len(seen) > 1

    Bench("embedded", server).run(story)


def test_stores_of_different_prefixes_do_not_see_each_other_and_clear_leaves_foreign_keys(
    server: EmbeddedServer,
) -> None:
    async def story(store: FeatureStore) -> None:
        other = Bench("embedded", server).open(prefix="na.b")
        for number, each in enumerate((store, other)):
            await each.commit(Commit(number, {"u:1": (b"%d" % number, 60)}, {("t", "a"): b"%d" % number}))
        assert await store.read(["u:1"]) == Snapshot(0, (b"0",))
        await store.clear()
        assert await other.read(["u:1"]) == Snapshot(1, (b"1",))
        assert await other.population() == {("t", "a"): b"1"}
        await other.clear()
        await other.close()

    with raw(server) as client:
        foreign = {b"n": b"1", b"na": b"2", b"na_b:u:1": b"3", b"xna:u:1": b"4", b"naXb:u:1": b"5"}
        client.mset(foreign)
        Bench("embedded", server).run(story)
        assert set(client.keys("*")) == set(foreign)
        client.flushall()


@pytest.mark.parametrize("prefix", ["", "a:b", "na*", "a b", "ü", "[x]", "x" * 33, "na\n"])
def test_a_prefix_that_could_match_foreign_keys_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="store prefix"):
        RedisStore.connect("redis://localhost", prefix=prefix)
