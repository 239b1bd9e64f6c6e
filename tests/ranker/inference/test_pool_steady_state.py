"""After warm-up a batch touches no new memory, whatever its shape."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[3]
BATCHES = 1000


class Seen(msgspec.Struct):
    """What a process of its own measured about itself, over all batches after the warm-up."""

    minor_faults: int
    resident_before: int
    resident_after: int
    peak_bytes: int
    capacity_bytes: int
    used_before: int
    used_after: int
    evictions: int
    opened: int


SERVES = """
import random, resource, sys
from pathlib import Path
import msgspec, torch
from ranker.inference.kv_spec import KvSpec
from ranker.inference.page_hash import Scope
from ranker.inference.page_store import config_that_fits, open_store
from ranker.inference.pool import MemoryPool
from ranker.inference.workspace import Workspaces

torch.set_num_threads(1)
drawn = random.Random(7)
spec = KvSpec("int4", layers=2, channels=64)
pool = MemoryPool(limit_bytes=16 << 20)
spaces = Workspaces(pool, 4 << 20)
store = open_store(pool, spec, config_that_fits(pool.largest_run_bytes, spec, longest=256))
histories = {user: [] for user in range(200)}

def batch(rows, user, new):
    histories[user] += [b"%d" % drawn.getrandbits(30) for _ in range(new)]
    with spaces.batch() as work:
        states, out = work.tensor("states", (rows, 256)), work.tensor("out", (rows, 256))
        states.fill_(1.0)
        torch.mul(states, 2.0, out=out)
        scope = Scope("m@1", "s", "int4", str(user))
        with store.pages.open(scope, histories[user][-256:], len(histories[user])) as seen:
            store.prepare(seen)
            layout = seen.layout
            fresh = layout.full[len(layout.full) - layout.fresh :]
            exact = [work.tensor(name, (len(fresh), 32, 64)).fill_(0.5) for name in ("fresh keys", "fresh values")]
            read = [work.tensor(name, (len(layout.full), 32, 64)) for name in ("keys", "values")]
            for layer in range(2):
                store.full.write(fresh, layer, *exact)
                store.full.read(layout.full, layer, *read)
            seen.commit()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

for user in histories:
    histories[user] = [b"%d" % drawn.getrandbits(30) for _ in range(240)]
for number in range(300):
    batch(1024 if number == 0 else drawn.randrange(1, 1024), number % 200, drawn.randrange(0, 12))
used, before, at = pool.used_bytes, faults(), resident()
for number in range(BATCHES):
    batch(drawn.randrange(1, 1024), drawn.randrange(200), drawn.randrange(0, 3))
seen = dict(minor_faults=faults() - before, resident_before=at, resident_after=resident(), peak_bytes=pool.peak_bytes,
    capacity_bytes=pool.capacity_bytes, used_before=used, used_after=pool.used_bytes,
    evictions=store.pages.counts()["full"].evictions, opened=store.pages.stats.opened)
store.pages.check_integrity(); pool.check_integrity()
sys.stdout.buffer.write(msgspec.json.encode(seen))
"""


@pytest.fixture(scope="module")
def seen() -> Seen:
    script = SERVES.replace("BATCHES", str(BATCHES))
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Seen)


def test_a_batch_faults_in_almost_no_page(seen: Seen) -> None:
    assert seen.minor_faults / BATCHES <= 50


def test_resident_memory_is_flat(seen: Seen) -> None:
    assert abs(seen.resident_after - seen.resident_before) < 4 << 20


def test_the_peak_is_within_the_plan_and_nothing_stays_lent(seen: Seen) -> None:
    assert seen.peak_bytes <= seen.capacity_bytes <= 0.85 * (16 << 20)
    assert seen.used_after == seen.used_before


def test_the_batches_did_evict(seen: Seen) -> None:
    assert seen.opened == BATCHES + 300 and seen.evictions > BATCHES
