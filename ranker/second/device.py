"""One device for the second stage: a pool, its pages, and the engine that runs versions of one size."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ranker.inference.engine import Engine, open_engine
from ranker.inference.memory_errors import PoolExhausted
from ranker.inference.page_store import PageStore, config_that_fits, open_store
from ranker.inference.pool import MemoryPool
from ranker.inference.scheduler import SchedulerConfig
from ranker.inference.shards import ShardCache
from ranker.inference.sizes import align_up
from ranker.release.registry import Registry
from ranker.release.shard_source import RegistrySource
from ranker.second.buffers import TOGETHER, Shapes, workspace_bytes
from ranker.second.config import Sizes
from ranker.second.graphs import Capturer, CudaCapturer
from ranker.second.paged import kv_spec
from ranker.second_config import ServeSecond

MODEL = "second"
GROUP = 32
MIB = 1 << 20
LARGEST_SHARDS = 1 << 30
"""Bytes of versions in memory at once: two, while one takes over from the other."""


@dataclass(frozen=True)
class SecondDevice:
    """What runs models of these sizes.

    Args:
        together: requests that are scored at once; its workspace has a history for each.
    """

    sizes: Sizes
    store: PageStore
    engine: Engine
    together: int

    async def close(self) -> None:
        """Answers what it was asked, then stops."""
        await self.engine.close()


def open_device(sizes: Sizes, registry: Registry, config: ServeSecond) -> SecondDevice:
    """The configured device with as many pages as its memory holds beside the workspace.

    Raises:
        PoolExhausted: the memory does not hold one batch and two histories.
    """
    pool = MemoryPool(config.memory_mib * MIB, device=config.device)
    free = pool.largest_run_bytes
    together = together_in(free, sizes, config)
    workspace = _workspace(sizes, config, together)
    if workspace >= free:
        raise PoolExhausted(workspace, free, free, f"the workspace of one request with {sizes.window} events")
    spec = kv_spec(config.kv, sizes, config.page_tokens, GROUP)
    store = open_store(pool, spec, config_that_fits(free - workspace, spec, longest=sizes.window))
    limits = SchedulerConfig(
        max_batch_requests=config.max_batch_requests if config.batching else 1,
        max_queue_requests=config.max_queue_requests,
        max_batch_tokens=max(4096, sizes.window + 1000),
    )
    cache = ShardCache(capacity_bytes=LARGEST_SHARDS, source=RegistrySource({MODEL: registry}))
    engine = open_engine(
        limits, pool, workspace_bytes=workspace, cache=cache, pages=store.pages,
        begin=lambda: torch.set_num_threads(config.threads),
    )  # fmt: skip
    return SecondDevice(sizes, store, engine, together)


def together_in(free_bytes: int, sizes: Sizes, config: ServeSecond) -> int:
    """Requests that are scored at once: as many as pay, as long as pages have at least half of the memory.

    On a GPU one after the other, since a graph has one history.
    """
    if not config.batching or config.device != "cpu":
        return 1
    most = min(TOGETHER, config.max_batch_requests)
    fitting = (count for count in range(most, 1, -1) if 2 * _workspace(sizes, config, count) <= free_bytes)
    return next(fitting, 1)


def _workspace(sizes: Sizes, config: ServeSecond, together: int) -> int:
    return align_up(workspace_bytes(sizes, Shapes(sizes.window, config.page_tokens, config.micro_batch, together)))


def capturer_of(config: ServeSecond) -> Capturer | None:
    """What captures a GPU's graphs, where they are wanted."""
    return CudaCapturer() if config.device != "cpu" and config.cuda_graphs else None
