"""`nextaction profile`: of a running service, of a workload, and of nobody."""

from __future__ import annotations

import socket

import pytest

from ranker.commands.profile_workload import Workload
from ranker.inference.memory_report import PoolSource
from ranker.inference.page_hash import Scope
from ranker.inference.pages import PageConfig, Pages
from ranker.inference.pool import MemoryPool
from tests.command_line import Nextaction
from tests.ranker.api.fake_service import FakeService
from tests.ranker.api.running import running


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    return Nextaction(capsys)


def test_a_service_without_an_engine_shows_its_process(nextaction: Nextaction) -> None:
    with running(FakeService()) as url:
        done, found = nextaction("profile", "--url", url), nextaction("profile", "--url", url, "--json").json
    assert done.status == 0 and "no pool: no engine runs" in done.out and "resident" in done.out
    assert found["pools"] == [] and found["process"]["minor_faults"] > 0


def test_a_pool_that_is_registered_is_shown_with_its_pages_and_hot_spots(nextaction: Nextaction) -> None:
    pool, pages = MemoryPool(limit_bytes=1 << 20), Pages(PageConfig(pages=8, tails=4))
    with pages.open(Scope("m@1", "s", "int8", "ann"), [b"e"] * 40) as history:
        history.commit()
    with running(FakeService(), memory=[PoolSource("second", pool, pages)]) as url, pool.lease(64_000, part="scores"):
        done = nextaction("profile", "--url", url, "--seconds", "30")
        found = nextaction("profile", "--url", url, "--json", "--seconds", "30").json["pools"][0]
    for text in ("pool second on cpu", "scores", "external fragmentation", "largest run", "by part, last 30 s"):
        assert text in done.out
    assert found["profile"]["used_bytes"] == 64_000 and found["profile"]["pages"]["full"]["cached"] == 1


def test_no_service_is_one_line_and_a_failure(nextaction: Nextaction) -> None:
    with socket.socket() as held:  # bound and not listening: refused, and nobody else can take it
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        done = nextaction("profile", "--url", url)
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert url in done.err and "refused" in done.err


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://[::1", ""])
def test_an_address_that_is_none_is_one_line_and_a_failure(nextaction: Nextaction, url: str) -> None:
    done = nextaction("profile", "--url", url)
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert f"--url {url}" in done.err


@pytest.mark.parametrize("seconds", ["0", "-5", "nan", "1e400", "301", "soon"])
def test_a_window_that_cannot_be_is_named(nextaction: Nextaction, seconds: str) -> None:
    done = nextaction("profile", "--seconds", seconds)
    assert done.status == 2 and "--seconds" in done.err and seconds in done.err and done.err.count("\n") == 1


def test_the_workload_shows_fragmentation_and_hot_spots_without_a_service(nextaction: Nextaction) -> None:
    found = nextaction("profile", "--workload", "--batches", "300", "--json").json["pools"][0]["profile"]
    assert 0 < found["external_fragmentation"] < 1 and 0 < found["internal_fragmentation"] < 1
    assert {"shards", "candidates", "pages"} <= {spot["name"] for spot in found["hot_parts"]}
    assert found["peak_bytes"] <= found["capacity_bytes"] and found["share"] <= found["share_limit"] == 0.85
    assert found["pages"]["tail"]["evictions"] > 0
    assert "hot spots by shape" in nextaction("profile", "--workload", "--batches", "20").out


def test_the_workload_is_the_same_for_the_same_seed_and_leaves_nothing_lent() -> None:
    seen = []
    for _ in range(2):
        with Workload(seed=3) as workload:
            for _ in range(60):
                workload.batch()
            workload.pool.check_integrity()
            workload.pages.check_integrity()
            seen.append((workload.pool.used_bytes, workload.pages.counts()))
        assert workload.pool.used_bytes == 0
    assert seen[0] == seen[1]
