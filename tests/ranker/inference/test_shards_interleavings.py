"""Random interleavings of pin, release, cancel, feed, fail, retire, readmit and time against the invariants."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from ranker.inference.shard_errors import ShardError
from ranker.inference.shard_retries import LoadRules
from ranker.inference.shards import ShardCache, ShardKey
from tests.ranker.inference.shard_fakes import Holder, ManualTime, ScriptedSource, at_rest, content_of, key, run, turns

CAPACITY = 30
SIZES = {
    key(shard, version): nbytes for version in "12" for shard, nbytes in [("a", 10), ("b", 15), ("c", 7), ("d", 0)]
}
KEYS = sorted(SIZES)

key_of = st.sampled_from(KEYS)
step = st.one_of(
    st.tuples(st.just("pin"), key_of),
    st.tuples(st.just("feed"), key_of),
    st.tuples(st.just("fail"), key_of),
    st.tuples(st.just("corrupt"), key_of),
    st.tuples(st.sampled_from(["release", "cancel", "turns"]), st.integers(0, 7)),
    st.tuples(st.sampled_from(["retire", "readmit"]), st.sampled_from("12")),
    st.tuples(st.just("advance"), st.sampled_from([0.1, 1.0, 6.0, 40.0])),
)


class World:
    """A cache, those who use it, and what must hold after every step."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.source = ScriptedSource(SIZES, gated=True)
        self.cache = ShardCache(
            capacity_bytes=CAPACITY,
            source=self.source,
            rules=LoadRules(timeout_s=5),
            clock=self.time.clock,
            sleep=self.time.sleep,
        )
        self.holders: list[Holder] = []

    async def take(self, name: str, value: ShardKey | int | str | float) -> None:
        if isinstance(value, ShardKey):
            self.with_key(name, value)
        elif name == "turns":
            await turns(int(value))
        elif name == "advance":
            await self.time.advance(float(value))
        elif isinstance(value, str):
            (self.cache.retire if name == "retire" else self.cache.readmit)("m", value)
        elif self.holders:
            await self.with_holder(name, self.holders[int(value) % len(self.holders)])

    def with_key(self, name: str, value: ShardKey) -> None:
        if name == "pin":
            self.holders.append(Holder(self.cache, value))
        elif name == "feed":
            self.source.feed(value)
        else:
            whole = content_of(value, SIZES[value])
            self.source.script(value, [whole[:2], OSError("reset")] if name == "fail" else [b"\0" + whole])

    async def with_holder(self, name: str, holder: Holder) -> None:
        if name == "cancel":
            await holder.cancel()
        elif holder.holding:
            await holder.release()

    def check(self) -> None:
        self.cache.check_integrity()
        assert max(self.source.running.values(), default=0) <= 1
        holding = Counter(holder.key for holder in self.holders if holder.holding)
        for name, count in holding.items():
            assert count and self.cache.state(name) in ("resident", "leaving"), f"{name} went under a holder"
        assert self.cache.stats().pinned_bytes >= sum(SIZES[name] for name in holding)
        for holder in self.holders:
            assert holder.content in (None, content_of(holder.key, SIZES[holder.key])), "unverified bytes were used"

    async def end(self) -> None:
        """Everyone leaves; what still loads may end or be cut off by its time-out."""
        for holder in self.holders[::2]:
            if not holder.holding:
                await holder.cancel()
        for _ in range(len(self.holders) + 1):  # a pin may start its own load only after another's time-out
            for holder in self.holders:
                if holder.holding:
                    await holder.release()
            await self.time.advance(6)
        for holder in self.holders:
            assert holder.task.done(), f"{holder.key} waits without end"
            error = None if holder.task.cancelled() else await holder.error()
            assert error is None or isinstance(error, ShardError)


@settings(max_examples=500, deadline=None)
@given(st.lists(step, max_size=80))
def test_no_interleaving_breaks_an_invariant_or_leaks(steps: list[tuple[str, ShardKey | int | str | float]]) -> None:
    async def test() -> None:
        world = World()
        for name, value in steps:
            await world.take(name, value)
            world.check()
        await world.end()
        world.check()
        at_rest(world.cache)
        assert not +world.source.running
        stats = world.cache.stats()
        assert stats.resident_bytes == sum(stats.resident_by_version.values()) <= CAPACITY
        await world.cache.aclose()
        assert world.cache.stats().resident_bytes == 0

    run(test())


@settings(max_examples=100, deadline=None)
@given(st.lists(key_of, max_size=40))
def test_one_by_one_it_is_the_lru_of_ten_lines(names: list[ShardKey]) -> None:
    def model() -> tuple[list[ShardKey], int]:
        kept: list[ShardKey] = []
        loads = 0
        for name in names:
            loads += name not in kept
            if name in kept:
                kept.remove(name)
            while sum(SIZES[each] for each in kept) + SIZES[name] > CAPACITY:
                kept.pop(0)
            kept.append(name)
        return sorted(kept), loads

    async def test() -> None:
        source = ScriptedSource(SIZES)
        cache = ShardCache(capacity_bytes=CAPACITY, source=source)
        for name in names:
            async with cache.pin(name) as shard:
                assert shard.data == content_of(name, SIZES[name])
        assert ([name for name in KEYS if cache.state(name)], source.starts.total()) == model()
        at_rest(cache)

    run(test())
