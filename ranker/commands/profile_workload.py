"""A workload to look at the profile with: batches of changing shapes through a real pool, real pages, on the CPU.

No model runs: what a batch would compute is a touch of each byte it would write, in numpy. Beside the batches, leases
of mixed sizes come and go out of order, as shards do, so that the free space breaks up.
"""

from __future__ import annotations

import random
from types import TracebackType
from typing import Self

import numpy as np

from ranker.inference.kv_spec import KvSpec
from ranker.inference.lease import Lease
from ranker.inference.memory_errors import PagesBusy, PoolExhausted
from ranker.inference.memory_report import PoolSource
from ranker.inference.page_hash import Scope
from ranker.inference.pages import History, PageConfig, Pages
from ranker.inference.pool import MemoryPool
from ranker.inference.workspace import Workspaces

LIMIT_BYTES = 48 << 20
WORKSPACE_BYTES = 8 << 20
PAGES, TAILS = 500, 250
USERS = 400
LONGEST = 512
WIDTH = 256
MOST_HISTORIES = 8
SHARDS_KEPT = 6
SHARD_BYTES = (1 << 20, 4 << 20)


class Workload:
    """Holds its pool until the block ends.

    Args:
        seed: the same seed gives the same batches.
    """

    def __init__(self, seed: int) -> None:
        self._drawn = random.Random(seed)
        self._spec = KvSpec("int8", layers=2, channels=64)
        self.pool = MemoryPool(LIMIT_BYTES)
        self._spaces = Workspaces(self.pool, WORKSPACE_BYTES)
        spec = self._spec
        self._full = self.pool.lease((PAGES + 1) * spec.page_bytes, part="pages", shape=spec.scheme).acquire()
        self._tails = self.pool.lease((TAILS + 1) * spec.tail_bytes, part="tail pages", shape="fp32").acquire()
        self.pages = Pages(PageConfig(PAGES, TAILS, spec.page_tokens, LONGEST), self._erase)
        self.source = PoolSource("workload", self.pool, self.pages)
        self.busy = 0
        self._shards: list[Lease] = []
        self._events: dict[int, list[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spaces.close()
        for lease in (*self._shards, self._full, self._tails):
            lease.release()
        self._shards.clear()
        assert self.pool.leases == 0 and self.pages.open_histories == 0, "the workload leaks"

    def batch(self) -> None:
        """A few users, each with a few new events and some candidates; sometimes a shard comes or goes."""
        users = self._drawn.sample(range(USERS), self._drawn.randint(1, MOST_HISTORIES))
        candidates = self._drawn.choice((8, 16, 32, 64))
        with self._spaces.batch() as work:
            rows = len(users) * candidates
            work.array("candidates", (rows, WIDTH)).fill(1.0)
            work.array("scores", (rows, 4)).fill(0.5)
            for user in users:
                self._encode(user)
        if self._drawn.random() < 0.2:
            self._turn_shards()

    def _encode(self, user: int) -> None:
        events = self._events.setdefault(user, [])
        events += [b"%d" % self._drawn.getrandbits(30) for _ in range(self._drawn.choice((1, 2, 3, 40)))]
        total = len(events)
        try:
            with self.pages.open(Scope("m@1", "s", self._spec.scheme, f"user {user}"), events, total) as history:
                self._write(history)
                history.commit()
        except PagesBusy:
            self.busy += 1

    def _write(self, history: History) -> None:
        layout = history.layout
        for page in layout.full[len(layout.full) - layout.fresh :]:
            self._bytes_of("full", page).fill(1)
        if layout.tail is not None and layout.tail != layout.source:
            self._bytes_of("tail", layout.tail).fill(1)

    def _erase(self, kind: str, page: int) -> None:
        self._bytes_of(kind, page).fill(0)

    def _bytes_of(self, kind: str, page: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        lease, size = (self._full, self._spec.page_bytes) if kind == "full" else (self._tails, self._spec.tail_bytes)
        return lease.array()[page * size : (page + 1) * size]

    def _turn_shards(self) -> None:
        while len(self._shards) >= SHARDS_KEPT:
            self._shards.pop(self._drawn.randrange(len(self._shards))).release()
        nbytes = self._drawn.randint(*SHARD_BYTES)
        try:
            self._shards.append(self.pool.lease(nbytes, part="shards", shape=f"{nbytes >> 20} MiB").acquire())
        except PoolExhausted:  # no run is long enough: the oldest makes way
            if self._shards:
                self._shards.pop(0).release()
