"""`GET /v1/memory`: the process always, pools while they are registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import pytest

from ranker.inference.memory_report import MemoryReport, MemorySource, PoolSource
from ranker.inference.page_hash import Scope
from ranker.inference.pages import PageConfig, Pages
from ranker.inference.pool import MemoryPool
from ranker.inference.shard_stats import ShardStats
from tests.ranker.api.fake_service import App


@dataclass
class FakeCache:
    """A cache with given figures."""

    found: ShardStats

    def stats(self) -> ShardStats:
        return self.found


def asked(app: App, query: str = "") -> MemoryReport:
    answer = app.ask("GET", f"/v1/memory{query}")
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=MemoryReport)


def test_without_an_engine_the_process_and_what_the_service_holds_are_reported() -> None:
    found = asked(App())
    assert found.pools == []
    assert found.service == {"catalogue": 1}
    assert found.process.minor_faults > 0 and found.process.peak_resident_bytes > 1 << 20
    resident = found.process.resident_bytes
    assert resident is None or 1 << 20 < resident <= found.process.peak_resident_bytes * 1.1
    assert len(found.process.gc_collections) == len(found.process.gc_pending) == 3


def test_pools_come_and_go_with_the_engine() -> None:
    sources: list[MemorySource] = []
    app = App(memory=sources)
    assert asked(app).pools == []
    pool, pages = MemoryPool(limit_bytes=100_000, share=0.5), Pages(PageConfig(pages=8, tails=4))
    with pages.open(Scope("m@1", "s", "int8", "ann"), [b"e"] * 48) as history:
        history.commit()
    held: Mapping[str, int] = {"m@1": 700}
    cache = FakeCache(ShardStats(hits=9, misses=1, loads=1, resident_bytes=700, resident_by_version=held))
    sources.append(PoolSource("second", pool, pages, cache))
    with pool.lease(6_400, part="scores", shape="100x16 float32"):
        found = asked(app, "?window_s=5").pools[0]
    assert (found.name, found.profile.used_bytes, found.profile.capacity_bytes) == ("second", 6_400, 50_000)
    assert (found.profile.share, found.profile.window_s) == (0.5, 5.0)
    assert [spot.name for spot in found.profile.hot_parts] == ["scores"]
    assert found.profile.pages is not None and found.profile.pages.full.cached == 1
    assert found.profile.internal_fragmentation == 1 - 48 / 64
    assert found.shards is not None and found.shards.resident_by_version == {"m@1": 700}
    sources.clear()
    assert asked(app).pools == []


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e400", "301", "soon", ""])
def test_a_window_that_cannot_be_is_named(value: str) -> None:
    answer = App().ask("GET", f"/v1/memory?window_s={value}")
    assert answer.status_code == 422
    assert answer.json()["field"] == "window_s" and repr(value) in answer.json()["detail"]


def test_an_unknown_parameter_is_named() -> None:
    answer = App().ask("GET", "/v1/memory?window=60")
    assert answer.status_code == 422 and answer.json()["field"] == "window"


def test_only_reading_is_allowed() -> None:
    assert App().ask("DELETE", "/v1/memory").status_code == 405
