"""A second stage behind an engine, with pages, shards and a registry, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from features.registry import FINGERPRINT
from ranker.inference.engine import Engine, open_engine
from ranker.inference.model import Member
from ranker.inference.page_store import open_store
from ranker.inference.pages import PageConfig
from ranker.inference.pool import MemoryPool
from ranker.inference.scheduler import SchedulerConfig
from ranker.inference.shards import ShardCache
from ranker.inference.workspace import Workspaces
from ranker.release.registry import Registry
from ranker.release.shard_source import RegistrySource
from ranker.second.config import SecondConfig
from ranker.second.graphs import Capturer
from ranker.second.happenings import Course
from ranker.second.paged import Ask, Logits, PagedSecond, ask_of, kv_spec
from ranker.second.tokens import CandidateTokens
from ranker.second.weights import SecondModel, to_files
from ranker.second.windows import Windows
from tests.ranker.second import made

BUDGET_MS = 60_000.0
HEADS_TRAINED = {"accept": True, "complete": True, "dismiss": True, "reuse": True}


class Served:
    """One version of random weights, served."""

    def __init__(
        self, folder: Path, model: SecondModel, *, scheme: str = "fp32", pages: int = 64, tails: int = 24,
        page_tokens: int = 8, micro_batch: int = 64, dtype: torch.dtype = torch.float32,
        pages_kept: bool = True, capturer: Capturer | None = None,
    ) -> None:  # fmt: skip
        registry = Registry(folder)
        known = model.vocabulary.values
        files, entry = to_files(model.net, known, SecondConfig(), HEADS_TRAINED, light="0")
        version = registry.publish(files, schema=FINGERPRINT, kind="second").version
        self.model = model
        self.pool = MemoryPool(32 << 20)
        spec = kv_spec(scheme, model.sizes, page_tokens, page_tokens)
        config = PageConfig(pages, tails, page_tokens, model.sizes.window)
        self.store = open_store(self.pool, spec, config)
        self.cache = ShardCache(capacity_bytes=16 << 20, source=RegistrySource({"second": registry}))
        self.paged = PagedSecond(
            "second", version, entry, known, model.sizes, self.store, micro_batch=micro_batch, dtype=dtype,
            pages=pages_kept, capturer=capturer,
        )  # fmt: skip
        limits = SchedulerConfig(max_batch_tokens=2048, max_batch_requests=16)
        self.workspaces = Workspaces(self.pool, 8 << 20)
        self.engine: Engine = open_engine(limits, self.pool, workspace_bytes=8 << 20, cache=self.cache)
        self.windows = Windows(model.vocabulary, model.sizes)

    async def load(self) -> None:
        await self.engine.load(self.paged.key, self.paged)

    def ask(
        self, user: str, course: Course, candidates: CandidateTokens, now_s: float, text: str | None = "words"
    ) -> Ask:  # fmt: skip
        window = self.windows.of(user, course)
        sizes, vocabulary = self.model.sizes, self.model.vocabulary
        return ask_of(user, "s1", made.context(text), now_s, window, candidates, vocabulary, sizes)

    async def logits(self, ask: Ask) -> Logits:
        request = self.engine.request(self.paged.key, ask, budget_ms=BUDGET_MS)
        found: Logits = await self.engine.submit(request, ask)
        return found

    def at_once(self, asks: Sequence[Ask]) -> Sequence[Logits]:
        """One batch of these, without the engine's queue."""
        holds = [self.paged.hold(ask) for ask in asks]
        try:
            with self.workspaces.batch() as workspace:
                members = [Member(ask, hold) for ask, hold in zip(asks, holds, strict=True)]
                return self.paged.run(members, workspace)
        finally:
            for hold in reversed(holds):
                hold.release()

    async def close(self) -> None:
        await self.engine.close()
        self.store.pages.check_integrity()
        assert self.store.pages.open_histories == 0
        assert self.cache.stats().pinned_bytes == 0
        self.pool.check_integrity()
