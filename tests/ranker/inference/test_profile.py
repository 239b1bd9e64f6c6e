"""The profile: what it says is what is there."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from ranker.inference.hot_spots import KEPT_S, MOST_KEYS, HotSpots
from ranker.inference.memory_errors import DeviceMissing, InvalidSize
from ranker.inference.page_hash import Scope
from ranker.inference.pages import PageConfig, Pages
from ranker.inference.pool import MemoryPool
from ranker.inference.profile import framework, profile, summarise


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.25

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def pool(clock: Seconds) -> MemoryPool:
    return MemoryPool(limit_bytes=100_000, share=0.5, clock=clock)


def test_used_reserved_peak_and_share_are_the_pools(pool: MemoryPool) -> None:
    with pool.lease(10_000):
        pass
    with pool.lease(6_400):
        seen = profile(pool)
    assert (seen.used_bytes, seen.reserved_bytes, seen.capacity_bytes) == (6_400, 43_600, 50_000)
    assert (seen.peak_bytes, seen.share, seen.leases) == (10_048, 0.5, 1)


def test_external_fragmentation_is_what_one_lease_could_not_have(pool: MemoryPool) -> None:
    assert profile(pool).external_fragmentation == 0.0
    first, second = pool.lease(6_400).acquire(), pool.lease(6_400).acquire()
    first.release()
    seen = profile(pool)
    assert (seen.largest_run_bytes, seen.reserved_bytes) == (37_200, 43_600)
    assert seen.external_fragmentation == 1 - 37_200 / 43_600
    second.release()
    with pool.lease(pool.capacity_bytes):
        assert profile(pool).external_fragmentation == 0.0


def test_internal_fragmentation_is_the_empty_part_of_the_occupied_pages(pool: MemoryPool) -> None:
    pages = Pages(PageConfig(pages=8, tails=4, page_tokens=4, longest=16))
    assert profile(pool, pages).internal_fragmentation == 0.0
    scope = Scope("m@1", "s", "int8", "ann")
    with pages.open(scope, [b"e"] * 9) as history:
        history.commit()
    seen = profile(pool, pages)
    assert seen.internal_fragmentation == 1 - 9 / 12  # two full pages, and a tail of one
    with pages.open(scope, [b"e"] * 10):
        held = profile(pool, pages).pages
        assert held is not None
        assert (held.full.pinned, held.full.cached, held.full.empty, held.trash) == (2, 0, 6, 2)
        assert (held.open_histories, held.reuse, held.busy) == (1, 9 / 19, 0)


def test_the_profile_is_json(pool: MemoryPool) -> None:
    pages = Pages(PageConfig(pages=1, tails=2))
    with pool.lease(64, part="scores", shape="8x2"):
        said = json.loads(msgspec.json.encode(profile(pool, pages, window_s=10)))
    assert said["hot_parts"] == [{"name": "scores", "takes": 1, "total_bytes": 64, "largest_bytes": 64}]
    assert said["hot_shapes"][0]["name"] == "8x2"
    assert said["pages"]["full"] == {"pinned": 0, "cached": 0, "empty": 1, "tokens": 0, "evictions": 0}
    assert said["framework"] is None and said["device"] == "cpu"


def test_hot_spots_are_ranked_by_bytes_and_leave_with_the_window(pool: MemoryPool, clock: Seconds) -> None:
    for _ in range(3):
        with pool.lease(640, part="often"):
            pass
    clock.now += 30
    with pool.lease(6_400, part="large", shape="100x16"), pool.lease(64, part="small"):
        pass
    assert [(spot.name, spot.takes) for spot in profile(pool, window_s=60).hot_parts] == [
        ("large", 1),
        ("often", 3),
        ("small", 1),
    ]
    assert [spot.name for spot in profile(pool, window_s=60).hot_shapes] == ["100x16"]
    assert [spot.name for spot in profile(pool, window_s=10).hot_parts] == ["large", "small"]
    clock.now += 60
    assert profile(pool, window_s=10).hot_parts == []


def test_hot_spots_stay_bounded_whatever_comes(clock: Seconds) -> None:
    spots = HotSpots(clock)
    for second in range(KEPT_S + 50):
        clock.now = second + 0.9
        for number in range(5):
            spots.record("part", f"{second}-{number}", 1)
    assert spots.by_part(1e9)[0].takes == 5 * KEPT_S
    for number in range(3 * MOST_KEYS):
        spots.record("flood", str(number), 1)
    assert {spot.name: spot.takes for spot in spots.by_part(0.5)} == {
        "other": 2 * MOST_KEYS + 5,
        "flood": MOST_KEYS - 5,
        "part": 5,
    }


@pytest.mark.parametrize("window", [0.0, -1.0, math.nan, math.inf])
def test_a_window_that_cannot_be_is_named(pool: MemoryPool, window: float) -> None:
    with pytest.raises(InvalidSize, match="window_s"):
        profile(pool, window_s=window)


def test_the_frameworks_snapshot_is_summed_up() -> None:
    stats = {"allocated_bytes.all.current": 60, "reserved_bytes.all.current": 80, "allocated_bytes.all.peak": 70}
    block = {"size": 15, "state": "inactive"}
    segments = [
        {"blocks": [{"size": 40, "state": "active_allocated"}, block]},
        {"blocks": [{"size": 5, "state": "inactive"}]},
    ]
    seen = summarise(stats, segments)
    assert (seen.fragmentation, seen.segments, seen.largest_inactive, seen.peak_allocated) == (0.25, 2, 15, 70)
    assert summarise({}, []).fragmentation == 0.0


def test_without_the_device_the_frameworks_snapshot_is_refused() -> None:
    with pytest.raises(DeviceMissing):
        framework("cuda:99")
