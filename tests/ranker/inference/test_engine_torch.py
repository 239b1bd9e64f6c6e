"""The engine with a real torch model: paged histories, verified safetensors, a leased workspace."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ranker.inference.engine import Engine, Rejected, open_engine
from ranker.inference.page_store import PageStore, open_store
from ranker.inference.pool import MemoryPool
from ranker.inference.scheduler import Request, SchedulerConfig
from ranker.inference.shards import ShardCache
from ranker.release.registry import Registry
from ranker.release.shard_source import RegistrySource
from tests.ranker.inference.engine_fakes import turns
from tests.ranker.inference.loops import in_loop
from tests.ranker.inference.tiny_transformer import SPEC, Ask, TinyTransformer, dense, page_config, weights_of

BUDGET_MS = 60_000.0


def asks(count: int, users: int, seed: int = 1) -> list[Ask]:
    """Requests of users whose histories grow, with late events that change the past now and then."""
    draw = random.Random(seed)
    histories = [[draw.randrange(64)] for _ in range(users)]
    found = []
    for _ in range(count):
        user = draw.randrange(users)
        history = histories[user]
        history += [draw.randrange(64) for _ in range(draw.randrange(4))]
        if draw.random() < 0.1:
            history[draw.randrange(len(history))] = draw.randrange(64)
        if len(history) > 32:
            del history[8:]
        found.append(Ask(f"u{user}", tuple(history), tuple(draw.sample(range(64), draw.randint(1, 6)))))
    return found


class Served:
    """An engine over a registry with as many versions as there are seeds."""

    def __init__(self, folder: Path, pages: int, seeds: tuple[int, ...] = (1,)) -> None:
        self.files = [weights_of(seed) for seed in seeds]
        registry = Registry(folder)
        self.versions = [registry.publish(files, schema="tiny", kind="second").version for files in self.files]
        self.pool = MemoryPool(4 << 20)
        self.store: PageStore = open_store(self.pool, SPEC, page_config(pages))
        source = RegistrySource({"tiny": registry})
        self.cache = ShardCache(capacity_bytes=1 << 20, source=source)
        config = SchedulerConfig(max_batch_tokens=256, max_batch_requests=8)
        self.engine: Engine = open_engine(config, self.pool, workspace_bytes=1 << 18, cache=self.cache)
        self.models = [TinyTransformer("tiny", version, self.store) for version in self.versions]

    async def load(self, number: int = 0) -> str:
        key = f"tiny@{self.versions[number]}"
        await self.engine.load(key, self.models[number])
        return key

    async def scores(self, key: str, ask: Ask) -> list[float]:
        request = self.engine.request(key, ask, budget_ms=BUDGET_MS)
        scores: list[float] = await self.engine.submit(request, ask)
        return scores

    async def close(self) -> None:
        await self.engine.close()
        self.store.pages.check_integrity()
        assert self.store.pages.open_histories == 0
        assert self.cache.stats().pinned_bytes == 0
        self.pool.check_integrity()


@in_loop
async def test_scores_do_not_depend_on_what_was_cached_or_who_else_is_in_the_batch(tmp_path: Path) -> None:
    served = Served(tmp_path, pages=24)  # fewer than the users need, so pages come and go
    key = await served.load()
    wanted = asks(150, users=9)
    found = await asyncio.gather(*(served.scores(key, ask) for ask in wanted))
    for ask, scores in zip(wanted, found, strict=True):
        assert scores == pytest.approx(dense(served.files[0], ask), abs=1e-5)
    stats = served.store.pages.stats
    assert stats.tokens_reused > 0 and served.engine.metrics()["batch_requests"]["max"] > 1
    await served.close()


@in_loop
async def test_an_empty_history_is_scored_too(tmp_path: Path) -> None:
    served = Served(tmp_path, pages=8)
    key = await served.load()
    ask = Ask("new", (), (3, 4))
    assert await served.scores(key, ask) == pytest.approx(dense(served.files[0], ask), abs=1e-5)
    await served.close()


@in_loop
async def test_only_new_events_are_encoded(tmp_path: Path) -> None:
    served = Served(tmp_path, pages=8)
    key = await served.load()
    history = tuple(range(20))
    await served.scores(key, Ask("u", history, (1,)))
    assert served.models[0].encoded_tokens == 20
    await served.scores(key, Ask("u", (*history, 20, 21), (1, 2, 3)))
    assert served.models[0].encoded_tokens == 22
    await served.close()


@in_loop
async def test_a_request_whose_pages_left_before_its_batch_is_budgeted_again_and_right(tmp_path: Path) -> None:
    served = Served(tmp_path, pages=8)
    key = await served.load()
    ask = Ask("u", tuple(range(30)), (1, 2))
    await served.scores(key, ask)
    request = served.engine.request(key, ask, budget_ms=BUDGET_MS)
    assert request.token_budget == 2  # all is cached
    await served.scores(key, Ask("other", tuple(range(30, 60)), (1,)))  # it takes all pages
    scores = await served.engine.submit(request, ask)
    assert scores == pytest.approx(dense(served.files[0], ask), abs=1e-5)
    assert served.engine.metrics()["returned"] == 1
    await served.close()


@in_loop
async def test_a_history_larger_than_the_page_arena_is_refused_at_once(tmp_path: Path) -> None:
    served = Served(tmp_path, pages=4)
    key = await served.load()
    with pytest.raises(Rejected) as raised:
        await served.scores(key, Ask("u", tuple(range(32)), (1,)))
    assert raised.value.reason == "too_large"
    await served.close()


@in_loop
async def test_a_new_version_never_reads_the_pages_of_the_old(tmp_path: Path) -> None:
    served = Served(tmp_path, pages=64, seeds=(1, 2))
    old = await served.load(0)
    ask = Ask("u", tuple(range(25)), (1, 2, 3))
    first = await served.scores(old, ask)
    new = await served.load(1)
    second = await served.scores(new, ask)
    assert first == pytest.approx(dense(served.files[0], ask), abs=1e-5)
    assert second == pytest.approx(dense(served.files[1], ask), abs=1e-5)
    await served.engine.retire(old)
    assert served.store.pages.retire(old) == 0  # `unload` has given them up
    assert await served.scores(new, ask) == pytest.approx(second, abs=1e-5)
    await served.close()


@in_loop
async def test_a_client_that_leaves_while_its_batch_runs_leaks_no_page(tmp_path: Path) -> None:
    served = Served(tmp_path, pages=24)
    key = await served.load()
    draw = random.Random(3)
    for ask in asks(60, users=5):
        future = served.engine.offer(served.engine.request(key, ask, budget_ms=BUDGET_MS), ask)
        await turns(draw.randrange(4))
        future.cancel()
    await served.scores(key, asks(1, users=1)[0])
    await served.close()


@in_loop
async def test_a_run_that_fails_publishes_no_page(tmp_path: Path) -> None:
    served = Served(tmp_path, pages=24)
    key = await served.load()
    bad, good = Ask("bad", (1, 2, 3, 4, 5), (64,)), Ask("good", (1, 2, 3, 4, 5), (1,))  # there is no 64
    requests = [served.engine.request(key, ask, budget_ms=BUDGET_MS) for ask in (bad, good)]
    found = await asyncio.gather(*map(served.engine.submit, requests, (bad, good)), return_exceptions=True)
    assert isinstance(found[0], Exception) and "IndexError" in str(found[0])
    assert found[1] == pytest.approx(dense(served.files[0], good), abs=1e-5)
    assert served.models[0].cost(bad) == 6  # none of its five events is cached
    await served.close()


@in_loop
async def test_a_budget_given_too_low_by_a_caller_does_not_break_the_batch(tmp_path: Path) -> None:
    served = Served(tmp_path, pages=24)
    key = await served.load()
    ask = Ask("u", tuple(range(20)), (1,))
    now = served.engine.clock()
    scores = await served.engine.submit(Request("low", key, 1, now, now + BUDGET_MS), ask)
    assert scores == pytest.approx(dense(served.files[0], ask), abs=1e-5)
    await served.close()
