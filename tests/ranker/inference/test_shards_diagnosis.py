"""Why p99 got worse though the hit rate got better: each cause made in a real cache, and named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ranker.inference.shard_diagnosis import diagnose
from ranker.inference.shard_stats import ShardStats
from ranker.inference.shards import ShardCache, ShardKey
from tests.ranker.inference.loops import in_loop
from tests.ranker.inference.shard_fakes import ManualTime, ScriptedSource, key, read, run

MIB = 1 << 20
GOOD = ShardStats(
    hits=900, misses=100, loads=100, load_bytes=100 * MIB, load_ms=1000.0, transfer_ms=800.0, verify_ms=200.0
)
"""100 loads of 1 MiB at 8 ms of transfer and 2 ms of the rest."""


def better_hit_rate(**fields: object) -> ShardStats:
    return ShardStats(**{"hits": 960, "misses": 40, "loads": 40, **fields})  # type: ignore[arg-type]


def test_larger_shards_are_named_with_their_version() -> None:
    after = better_hit_rate(
        load_bytes=400 * MIB,
        load_ms=4000.0,
        transfer_ms=3200.0,
        loads_by_version={"m@1": 20, "m@2": 20},
        bytes_by_version={"m@1": 20 * MIB, "m@2": 380 * MIB},
    )
    cause = diagnose(GOOD, after)
    assert (cause.name, cause.version) == ("larger shards", "m@2")
    assert cause.figures["KiB per load"] == (1024, 10240) and cause.figures["hit rate"] == (0.9, 0.96)
    # 9 MiB more a load at 10 ms per MiB, 40 loads per 1,000 pins
    assert cause.effects["larger shards"] == pytest.approx(9 * 10 * 40)
    assert cause.effects["slower transfer"] == pytest.approx(0)


def test_a_slower_transfer_is_named() -> None:
    cause = diagnose(GOOD, better_hit_rate(load_bytes=40 * MIB, load_ms=4080.0, transfer_ms=4000.0))
    assert cause.name == "slower transfer"
    assert cause.figures["transfer ms per MiB"] == pytest.approx((8, 100))
    assert cause.effects["slower transfer"] == pytest.approx(92 * 40)
    assert "transfer ms per MiB 8 → 100" in str(cause)


def test_slower_hashing_is_not_called_a_slower_transfer() -> None:
    assert diagnose(GOOD, better_hit_rate(load_bytes=40 * MIB, load_ms=4000.0, transfer_ms=320.0)).name == "none"


def test_a_window_without_loads_or_pins_has_no_cause() -> None:
    assert diagnose(GOOD, ShardStats()).name == "none"
    assert diagnose(GOOD, ShardStats(hits=10)).name == "none"
    assert diagnose(ShardStats(), ShardStats()).name == "none"


def test_the_same_again_has_no_cause() -> None:
    assert diagnose(GOOD, GOOD).name == "none"


class Scene:
    """A cache whose source takes 10 ms a chunk, watched in windows."""

    def __init__(self, sizes: dict[ShardKey, int]) -> None:
        self.time = ManualTime()
        self.source = ScriptedSource(sizes, pieces=1)
        self.chunk_s = 0.010
        self.source.on_chunk = self._pass
        self.cache = ShardCache(capacity_bytes=30, source=self.source, clock=self.time.clock, sleep=self.time.sleep)

    def _pass(self) -> None:
        self.time.now_s += self.chunk_s

    async def window(self, names: Sequence[ShardKey], pause_s: float = 0.0) -> ShardStats:
        before = self.cache.stats()
        for name in names:
            await self.time.advance(pause_s)
            await read(self.cache, name)
        return self.cache.stats().since(before)


def test_churn_of_hot_shards_is_told_from_rare_loads_in_a_real_cache() -> None:
    hot = [key(name) for name in "abcd"]

    async def test() -> None:
        scene = Scene(dict.fromkeys(hot, 10))
        await scene.window(hot)
        calm = await scene.window([*[hot[0]] * 4, *hot[1:]], pause_s=70)  # slowly round: what returns is old
        churning = await scene.window([each for name in hot * 5 for each in [name] * 3])  # fast round, 1 slot short
        cause = diagnose(calm, churning)
        assert churning.hit_rate > calm.hit_rate and churning.returned_within_60s >= churning.loads - 1
        assert cause.name == "churn of hot shards"
        assert cause.figures["share back within 60 s"][1] > 0.9

    run(test())


def test_a_cold_version_is_named_in_a_real_cache() -> None:
    old = [key(name, "1") for name in "abcd"]
    new = [key(name, "2") for name in "abc"]

    async def test() -> None:
        scene = Scene(dict.fromkeys([*old, *new], 10))
        await scene.window(old)
        settled = await scene.window([*old, *old], pause_s=30)
        switched = await scene.window([each for name in new for each in [name] * 5])
        cause = diagnose(settled, switched)
        assert switched.hit_rate > settled.hit_rate
        assert (cause.name, cause.version) == ("cold version", "m@2")
        assert cause.figures["share of cold loads"] == (0, 1)

    run(test())


def test_a_slower_source_is_named_in_a_real_cache() -> None:
    names = [key(name) for name in "abcd"]

    async def test() -> None:
        scene = Scene(dict.fromkeys(names, 10))
        await scene.window(names)
        fast = await scene.window(names * 2, pause_s=61)
        scene.chunk_s = 0.100
        slow = await scene.window([each for name in names * 2 for each in [name] * 2], pause_s=61)
        cause = diagnose(fast, slow)
        assert slow.hit_rate > fast.hit_rate and cause.name == "slower transfer"

    run(test())


@in_loop
async def test_a_window_is_the_difference_of_two_snapshots_of_one_cache() -> None:
    scene = Scene({key("a"): 10, key("b"): 5, key("a", "2"): 7})
    await scene.window([key("a"), key("a")])
    window = await scene.window([key("a"), key("b"), key("a", "2")])
    assert (window.hits, window.misses, window.loads, window.load_bytes) == (1, 2, 2, 12)
    assert window.load_ms == pytest.approx(20) == window.transfer_ms
    assert window.loads_by_version == {"m@1": 1, "m@2": 1} and window.resident_bytes == 22
