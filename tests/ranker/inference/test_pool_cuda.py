"""On a GPU: the arena stays under the share, and batches take nothing beside it."""

from __future__ import annotations

import pytest
import torch

from ranker.inference.kv_spec import KvSpec
from ranker.inference.page_store import config_that_fits, open_store
from ranker.inference.pool import MemoryPool
from ranker.inference.profile import profile
from ranker.inference.workspace import Workspaces

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LIMIT = 4 << 30


def test_a_batch_takes_no_new_segment_and_gives_back_what_it_allocated() -> None:
    pool = MemoryPool(limit_bytes=LIMIT, device="cuda")
    spaces = Workspaces(pool, 64 << 20)
    spec = KvSpec("int4", layers=2, channels=64)
    store = open_store(pool, spec, config_that_fits(256 << 20, spec))
    assert pool.capacity_bytes + pool.outside_bytes <= 0.85 * LIMIT

    def batch(rows: int) -> None:
        with spaces.batch() as work:
            out = work.tensor("out", (rows, 256))
            torch.mul(work.tensor("states", (rows, 256)).fill_(1.0), 2.0, out=out)
            keys, values = (work.tensor(name, (4, 32, 64)).fill_(0.5) for name in ("keys", "values"))
            store.full.write([1, 2, 3, 4], 0, keys, values)
            store.full.read([1, 2, 3, 4], 0, keys, values)

    for rows in (4096, 1, 100):
        batch(rows)
    torch.cuda.synchronize()
    base, before = torch.cuda.memory_allocated(), profile(pool).framework
    for number in range(1000):
        batch(1 + number * 37 % 4096)
        assert torch.cuda.memory_allocated() == base
    after = profile(pool).framework
    assert before is not None and after is not None
    assert (after.segments, after.reserved) == (before.segments, before.reserved)
