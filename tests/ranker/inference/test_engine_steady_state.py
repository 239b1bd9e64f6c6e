"""A whole engine with a torch model: after warm-up a batch touches no new memory, whatever its shape."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[3]
BATCHES = 1000
LIMIT = 4 << 20


class Seen(msgspec.Struct):
    """What a process of its own measured about itself, over all batches after the warm-up."""

    batches: int
    largest: int
    minor_faults: int
    resident_before: int
    resident_after: int
    peak_bytes: int
    capacity_bytes: int
    used_before: int
    used_after: int
    answered: int
    failed: int
    evictions: int
    reused: int


SERVES = """
import asyncio, random, resource, sys
from dataclasses import replace
import msgspec, torch
from ranker.inference.engine import open_engine
from ranker.inference.page_store import open_store
from ranker.inference.pool import MemoryPool
from ranker.inference.process_memory import resident_bytes
from ranker.inference.scheduler import SchedulerConfig
from ranker.inference.shards import ShardCache, ShardKey
from tests.ranker.inference.shard_fakes import ScriptedSource
from tests.ranker.inference.tiny_transformer import SPEC, Ask, TinyTransformer, page_config, weights_of

drawn = random.Random(7)
files = weights_of(1)
source = ScriptedSource({ShardKey("tiny", "1", name): len(content) for name, content in files.items()})
source.contents = {ShardKey("tiny", "1", name): content for name, content in files.items()}
pool = MemoryPool(LIMIT)
store = open_store(pool, replace(SPEC, scheme="bf16"), page_config(120, tails=40))
histories = [[drawn.randrange(64) for _ in range(20)] for _ in range(50)]

def ask():
    user = drawn.randrange(50)
    history = histories[user]
    history += [drawn.randrange(64) for _ in range(drawn.randrange(3))]
    if len(history) > 32:
        del history[:8]
    return Ask(f"u{user}", tuple(history), tuple(drawn.sample(range(64), drawn.randint(1, 2))))

async def batches(engine, count):
    end = engine.stats.counts["batches"] + count
    while engine.stats.counts["batches"] < end:
        asks = [ask() for _ in range(drawn.randint(1, 4))]
        offers = [engine.offer(engine.request("tiny@1", each, budget_ms=60e3), each) for each in asks]
        await asyncio.gather(*offers)

async def main():
    cache = ShardCache(capacity_bytes=1 << 20, source=source)
    engine = open_engine(SchedulerConfig(max_batch_tokens=256, max_batch_requests=4), pool, workspace_bytes=1 << 18,
        cache=cache, pages=store.pages, begin=lambda: torch.set_num_threads(1))
    await engine.load("tiny@1", TinyTransformer("tiny", "1", store), warm=[ask()])
    await batches(engine, 200)
    before = engine.metrics()
    used, resident, faults = pool.used_bytes, resident_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    await batches(engine, BATCHES)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    after = engine.metrics()
    seen = dict(batches=after["batches"] - before["batches"], largest=int(after["batch_requests"]["max"]),
        minor_faults=faults, resident_before=resident, resident_after=resident_bytes(), peak_bytes=pool.peak_bytes,
        capacity_bytes=pool.capacity_bytes, used_before=used, used_after=pool.used_bytes,
        answered=after["answered"] - before["answered"], failed=after["failed"],
        evictions=store.pages.counts()["full"].evictions, reused=store.pages.stats.tokens_reused)
    await engine.close()
    store.pages.check_integrity(); pool.check_integrity()
    assert store.pages.open_histories == 0 and cache.stats().pinned_bytes == 0
    sys.stdout.buffer.write(msgspec.json.encode(seen))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def seen() -> Seen:
    script = SERVES.replace("BATCHES", str(BATCHES)).replace("LIMIT", str(LIMIT))
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Seen)


def test_a_batch_faults_in_almost_no_page(seen: Seen) -> None:
    assert seen.batches >= BATCHES
    assert seen.minor_faults / seen.batches <= 50


def test_resident_memory_is_flat(seen: Seen) -> None:
    assert abs(seen.resident_after - seen.resident_before) < 4 << 20


def test_the_peak_is_within_the_plan_and_nothing_stays_lent(seen: Seen) -> None:
    assert seen.peak_bytes <= seen.capacity_bytes <= 0.85 * LIMIT
    assert seen.used_after == seen.used_before


def test_the_batches_had_many_shapes_and_did_evict(seen: Seen) -> None:
    assert seen.largest == 4
    assert seen.answered > 2 * BATCHES and seen.failed == 0
    assert seen.evictions > BATCHES / 2 and seen.reused > 5 * BATCHES
