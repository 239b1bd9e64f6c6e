"""The memory pool: planned bytes, lent in scopes, refused before anything runs."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranker.inference.arena import DeviceBytes
from ranker.inference.free_runs import FreeRuns
from ranker.inference.memory_errors import DeviceMissing, InvalidSize, LeaseError
from ranker.inference.pool import MemoryPool, PoolExhausted

MIB = 1 << 20
ROOT = Path(__file__).parents[3]


@pytest.fixture
def pool() -> MemoryPool:
    return MemoryPool(limit_bytes=MIB, poison=True)


def test_the_capacity_is_the_share_of_the_limit_and_all_of_it_can_be_lent(pool: MemoryPool) -> None:
    assert pool.capacity_bytes == int(0.85 * MIB)
    with pool.lease(pool.capacity_bytes) as lease:
        assert lease.array().size == pool.capacity_bytes
        assert (pool.used_bytes, pool.reserved_bytes) == (pool.capacity_bytes, 0)
    assert (pool.used_bytes, pool.reserved_bytes, pool.peak_bytes) == (0, pool.capacity_bytes, pool.capacity_bytes)


def test_used_and_reserved_together_never_pass_the_share(pool: MemoryPool) -> None:
    with pool.lease(100_000), pool.lease(300_001):
        assert pool.used_bytes + pool.reserved_bytes <= 0.85 * MIB


def test_leases_are_aligned_disjoint_and_writable(pool: MemoryPool) -> None:
    with pool.lease(1) as first, pool.lease(65) as second, pool.lease(64) as third:
        leases = (first, second, third)
        assert [lease.offset % 64 for lease in leases] == [0, 0, 0]
        assert [lease.array().ctypes.data % 64 for lease in leases] == [0, 0, 0]
        for number, lease in enumerate(leases):
            lease.array()[:] = number
        assert [set(lease.array().tolist()) for lease in leases] == [{0}, {1}, {2}]
        assert pool.used_bytes == 64 + 128 + 64
        pool.check_integrity()


def test_a_tensor_and_an_array_are_the_same_bytes(pool: MemoryPool) -> None:
    with pool.lease(256) as lease:
        lease.tensor().fill_(7)
        assert lease.array().tolist() == [7] * 256


def test_what_does_not_fit_is_refused_at_the_call_and_says_what_would(pool: MemoryPool) -> None:
    third = pool.capacity_bytes // 3 // 64 * 64
    first, second = pool.lease(third).acquire(), pool.lease(third).acquire()
    first.release()
    with pytest.raises(PoolExhausted, match=r"largest run") as caught:
        pool.lease(2 * third)
    assert (caught.value.wanted, caught.value.free) == (2 * third, pool.capacity_bytes - third)
    assert caught.value.largest_run == pool.largest_run_bytes == pool.capacity_bytes - 2 * third
    assert pool.used_bytes == third
    second.release()


def test_a_lease_that_no_longer_fits_when_it_is_entered_takes_nothing(pool: MemoryPool) -> None:
    late = pool.lease(pool.capacity_bytes)
    with pool.lease(64), pytest.raises(PoolExhausted), late:
        pytest.fail("entered")
    assert pool.used_bytes == 0
    with late:
        assert pool.used_bytes == pool.capacity_bytes


@pytest.mark.parametrize("nbytes", [0, -1, True, 1.5, math.nan, "64", None, 2**63])
def test_a_size_that_cannot_be_is_named(pool: MemoryPool, nbytes: Any) -> None:
    with pytest.raises(InvalidSize, match=r"nbytes must be a whole number"):
        pool.lease(nbytes)


def test_a_huge_size_is_refused(pool: MemoryPool) -> None:
    with pytest.raises(PoolExhausted):
        pool.lease(2**63 - 1)
    with pool.lease(int(np.int64(64))) as lease:
        assert lease.nbytes == 64


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, math.nan, math.inf])
def test_a_share_outside_its_range_is_named(share: float) -> None:
    with pytest.raises(InvalidSize, match="share"):
        MemoryPool(limit_bytes=MIB, share=share)


@pytest.mark.parametrize("limit", [0, -5, 2.5, None])
def test_a_limit_that_cannot_be_is_named(limit: Any) -> None:
    with pytest.raises(InvalidSize, match="limit_bytes"):
        MemoryPool(limit_bytes=limit)


def test_a_limit_beyond_the_machine_is_refused_before_a_byte_is_touched() -> None:
    with pytest.raises(PoolExhausted, match="the machine has no more memory"):
        MemoryPool(limit_bytes=2**62)


@pytest.mark.parametrize("device", ["tpu", "cuda:99", "cuda:x", ""])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    with pytest.raises(DeviceMissing, match="device"):
        MemoryPool(limit_bytes=MIB, device=device)


def test_what_lives_on_the_device_outside_the_pool_comes_off_the_arena() -> None:
    assert DeviceBytes(1000, outside=300).arena(0.85) == 550
    with pytest.raises(PoolExhausted, match="850 of the 850 bytes"):
        DeviceBytes(1000, outside=850).arena(0.85)


def test_an_exception_gives_the_lease_back(pool: MemoryPool) -> None:
    with pytest.raises(RuntimeError, match="boom"), pool.lease(64):
        raise RuntimeError("boom")
    assert (pool.used_bytes, pool.leases) == (0, 0)


def test_a_cancellation_gives_the_lease_back(pool: MemoryPool) -> None:
    async def holds() -> None:
        with pool.lease(64):
            await asyncio.sleep(60)

    async def cancels() -> None:
        task = asyncio.create_task(holds())
        await asyncio.sleep(0)
        assert pool.used_bytes == 64
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancels())
    assert (pool.used_bytes, pool.leases) == (0, 0)


def test_a_lease_that_is_never_entered_holds_nothing(pool: MemoryPool) -> None:
    pool.lease(4096)
    assert pool.used_bytes == 0


def test_a_second_release_a_second_taking_and_a_use_after_release_are_found(pool: MemoryPool) -> None:
    lease = pool.lease(64)
    with pytest.raises(LeaseError, match="cannot be used: it is not taken yet"):
        lease.array()
    lease.acquire()
    with pytest.raises(LeaseError, match="cannot be taken: it is held"):
        lease.acquire()
    lease.release()
    for use in (lease.release, lease.array, lease.tensor, lease.acquire):
        with pytest.raises(LeaseError, match="it is released"):
            use()
    assert pool.used_bytes == 0


def test_a_view_kept_after_the_release_reads_nan(pool: MemoryPool) -> None:
    with pool.lease(64) as lease:
        kept = lease.array().view(np.float32)
        kept[:] = 1.0
    assert np.isnan(kept).all()


def test_threads_that_lend_and_return_leave_the_pool_whole(pool: MemoryPool) -> None:
    def lends(size: int) -> None:
        for _ in range(300):
            with pool.lease(size) as lease:
                lease.array()[:] = size % 251
                assert (lease.array() == size % 251).all()

    threads = [threading.Thread(target=lends, args=(size,)) for size in (64, 1000, 5000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.check_integrity()
    assert pool.used_bytes == 0


@given(st.integers(1, 3000), st.lists(st.tuples(st.booleans(), st.integers(1, 700)), max_size=60))
def test_free_runs_are_exactly_the_bytes_not_taken(capacity: int, calls: list[tuple[bool, int]]) -> None:
    runs, taken = FreeRuns(capacity), list[tuple[int, int]]()
    for takes, number in calls:
        if takes:
            found = runs.take(number)
            assert found is not None or number > runs.largest
            if found is not None:
                assert found[0] % 64 == 0 and found[1] >= number
                taken.append(found)
        elif taken:
            runs.give(*taken.pop(number % len(taken)))
        lent = np.zeros(capacity, dtype=int)
        for offset, nbytes in taken:
            lent[offset : offset + nbytes] += 1
        free = np.zeros(capacity, dtype=int)
        for offset, nbytes in runs.runs():
            free[offset : offset + nbytes] += 1
        assert (lent + free == 1).all()
        edges = np.flatnonzero(np.diff(np.concatenate(([0], free, [0]))))
        assert runs.runs() == [(int(a), int(b - a)) for a, b in edges.reshape(-1, 2)]  # longest runs, all joined
        assert runs.largest == max((int(b - a) for a, b in edges.reshape(-1, 2)), default=0)


def test_pool_pages_and_profile_work_without_torch() -> None:
    script = """
import sys
sys.modules["torch"] = None
from ranker.inference.kv_spec import KvSpec
from ranker.inference import kv_formats, kv_pages, page_store
from ranker.inference.pages import PageConfig, Pages, Scope
from ranker.inference.pool import MemoryPool
from ranker.inference.profile import profile
from ranker.inference.workspace import Workspaces

pool, pages = MemoryPool(limit_bytes=1 << 20), Pages(PageConfig(pages=4, tails=2))
with Workspaces(pool, 4096).batch() as work, pages.open(Scope("m", "s", "int8", "u"), [b"e"] * 40) as history:
    work.array("x", (8,))
    history.commit()
assert KvSpec("int8", 1, 64).page_bytes and profile(pool, pages).capacity_bytes
try:
    MemoryPool(limit_bytes=1 << 20, device="cuda")
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().strip() == "device 'cuda' needs torch, which is not installed"
