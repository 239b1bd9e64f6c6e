"""A follower without HTTP: a pipeline of its own over the keeper's store, catalogue and tables."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from features.registry import FINGERPRINT
from features.store import FeatureStore
from ranker.build import Surroundings
from ranker.config import ServeConfig
from ranker.decisions import Decisions
from ranker.idempotency import Answers
from ranker.model_watch import ModelWatch
from ranker.online import OnlineReader
from ranker.opening import SAFETY_FILE, load_model, load_scorer, settle_memory
from ranker.own_writes import OwnWrites
from ranker.policy_config import PolicyConfig
from ranker.ranking_desk import RankingDesk
from ranker.release.registry import Registry
from ranker.second_watch import SecondWatch, load_whole, second_watch
from ranker.secret import load_secret
from ranker.stages.light import Light
from ranker.wiring import DropCounter, Parts, pipelines
from ranker.workers.feed import Feed, Hooks
from ranker.workers.followed import Followed
from ranker.workers.followed_store import FollowedStore
from ranker.workers.lease import Fence


def _none() -> Mapping[str, Any]:
    return {}


@dataclass
class Follower:
    """Ranks while it follows.

    Args:
        ranking: what answers.
        feed: to be run; when that ends, so does this.
        joined: set once it has all it needs.
        http: counts of whoever answers over HTTP, for the keeper's metrics.
    """

    ranking: RankingDesk
    feed: Feed
    followed: Followed
    watch: ModelWatch
    second: SecondWatch
    counter: DropCounter
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    http: Callable[[], Mapping[str, Any]] = _none

    def counts(self) -> bytes:
        """What the keeper adds to its own."""
        unlogged, unkept = self.ranking.decisions.unlogged, self.ranking.answers.unkept
        drops = dict(self.counter.drops())
        second = self.second.totals()
        return msgspec.msgpack.encode(
            {"http": self.http(), "drops": drops, "unlogged": unlogged, "unkept": unkept, "second": second},
        )


def build_follower(
    worker: int, config: ServeConfig, policy: PolicyConfig, store: FeatureStore, around: Surroundings
) -> Follower:
    """Wires it; nothing runs yet.

    Args:
        store: the keeper's, over connections of this process.

    Raises:
        ConfigError: what it is made of is missing or broken.
    """
    clock = around.clock
    secret = load_secret(around.environment, config.secret_env, Path(config.secret_file))
    registry = Registry(Path(config.models_dir))
    light = Light(FINGERPRINT, around.model or load_model(registry))
    followed = Followed(Fence(clock.monotonic_ms, config.catalogue_lag_limit_ms))
    own = OwnWrites(followed)
    watch = ModelWatch(registry, light, load_whole(registry, config), around.look_s)
    second = second_watch(registry, watch, lambda: followed.applied, clock, config, [], around.look_s)
    parts = Parts(
        config=config,
        policy=policy,
        clock=clock,
        reader=OnlineReader(FollowedStore(store, followed), followed, config.lag_limit_ms),
        tables=lambda: followed.population.at(),
        caught_up=own.caught_up,
        live=followed.live,
        light=light,
        scorer=around.scorer or load_scorer(Path(config.models_dir) / SAFETY_FILE),
        secret=secret,
        counter=DropCounter(),
        lagging=lambda: followed.fence.closed,
        second=second,
    )
    pipeline, recheck = pipelines(parts)
    answers = Answers(store, clock.now_s)

    def joined(floor: int) -> None:
        own.floor = max(own.floor, floor)
        follower.joined.set()

    hooks = Hooks(own.wrote, answers.note_forgotten, joined, lambda: follower.counts())
    feed = Feed(worker, os.getpid(), followed, hooks, clock)
    decisions = Decisions(pipeline, recheck, None, followed.live, clock, remote=feed)
    ranking = RankingDesk(decisions, answers, clock, config.budgets_ms.by_priority(), around.new_id)
    follower = Follower(ranking, feed, followed, watch, second, parts.counter)
    return follower


async def ready(follower: Follower, following: asyncio.Task[None], config: ServeConfig) -> bool:
    """Whether it has come to have all it needs; not when the feed ended before."""
    joining = asyncio.create_task(follower.joined.wait())
    await asyncio.wait({joining, following}, return_when=asyncio.FIRST_COMPLETED)
    joining.cancel()
    if follower.joined.is_set() and config.freeze_gc:
        settle_memory()
    return follower.joined.is_set()


def run_watch(follower: Follower, stack: AsyncExitStack) -> None:
    """Follows the registry's active version, with its second stage, until the stack is closed."""
    stack.push_async_callback(follower.second.close)
    for name, work in (("model watch", follower.watch.run()), ("second watch", follower.second.run())):
        stack.callback(asyncio.create_task(work, name=name).cancel)
