"""The one function that wires everything; tests put fakes in the place of what they are not about."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from features.applier import Applier
from features.applier_settings import ApplierSettings
from features.catalogue import ActionSpec
from features.catalogue_log import SAVE_AFTER_LINES, LiveCatalogue, load_catalogue
from features.errors import FeatureError
from features.log import LogWriter, last_lines
from features.registry import FINGERPRINT
from features.store import FeatureStore
from ranker.catalogue_desk import CatalogueDesk
from ranker.clock import Clock, SystemClock
from ranker.config import ServeConfig
from ranker.decisions import Decisions
from ranker.errors import ConfigError
from ranker.idempotency import Answers
from ranker.inference.memory_report import MemorySource
from ranker.intake import Intake
from ranker.model_watch import LOOK_S, ModelWatch
from ranker.online import OnlineReader
from ranker.opening import (
    SAFETY_FILE,
    close_log,
    keep_catalogue,
    load_model,
    load_scorer,
    open_store,
    reach,
    settle_memory,
)
from ranker.own_writes import OwnWrites
from ranker.pipeline import Pipeline
from ranker.policy_config import PolicyConfig
from ranker.ranking_desk import RankingDesk
from ranker.recent_ids import LOG_BYTES, RecentIds, recent_ids
from ranker.release.registry import Registry
from ranker.second_watch import SecondWatch, load_whole, second_watch
from ranker.secret import load_secret
from ranker.service import OnlineService, Owners
from ranker.stages.light import Light
from ranker.stages.light import LightModel as Scores
from ranker.text_check import TextScorer
from ranker.user_desk import UserDesk
from ranker.wiring import DropCounter, Parts, pipelines

START_WAIT_S = 3.0

_log = logging.getLogger(__name__)


def _hex_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Surroundings:
    """What is around the service; a test gives fakes for it.

    Args:
        store, model, scorer: None opens what the config names; who gives a store closes it.
        actions: put into the catalogue when it is empty.
        look_s: how often it is looked for another active version.
        start_wait_s: how long the start waits for the store to be filled; then it goes on in the background.
    """

    clock: Clock = field(default_factory=SystemClock)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    store: FeatureStore | None = None
    model: Scores | None = None
    scorer: TextScorer | None = None
    actions: Mapping[str, ActionSpec] = field(default_factory=dict)
    new_id: Callable[[], str] = _hex_id
    applier: ApplierSettings = field(default_factory=ApplierSettings)
    look_s: float = LOOK_S
    start_wait_s: float = START_WAIT_S


@dataclass(frozen=True)
class Running:
    """A service that runs until it is closed."""

    service: OnlineService
    config: ServeConfig
    pipeline: Pipeline
    applier: Applier
    memory: list[MemorySource]
    _open: AsyncExitStack

    async def close(self) -> None:
        """Ends tasks, syncs and closes the log, and closes the store."""
        await self._open.aclose()


@dataclass(frozen=True)
class _Opened:
    """What holds state."""

    config: ServeConfig
    policy: PolicyConfig
    around: Surroundings
    log: LogWriter
    live: LiveCatalogue
    recent: RecentIds
    store: FeatureStore
    applier: Applier
    own: OwnWrites
    memory: list[MemorySource] = field(default_factory=list)


async def build(config: ServeConfig, policy: PolicyConfig, around: Surroundings | None = None) -> Running:
    """Opens everything, brings the store up to the log, and gives the service.

    Raises:
        ConfigError: one line that says what is missing or broken; nothing stays open then.
    """
    around = around or Surroundings()
    async with AsyncExitStack() as stack:
        try:
            secret = load_secret(around.environment, config.secret_env, Path(config.secret_file))
            registry = Registry(Path(config.models_dir))
            light = Light(FINGERPRINT, around.model or load_model(registry))
            scorer = around.scorer or load_scorer(Path(config.models_dir) / SAFETY_FILE)
            opened = await _open(config, policy, around, stack)
        except FeatureError as error:
            raise ConfigError(" ".join(str(error).split())) from error
        watch = ModelWatch(registry, light, load_whole(registry, config), around.look_s)
        log, clock, look_s = opened.log, around.clock, around.look_s
        second = second_watch(registry, watch, lambda: log.end, clock, config, opened.memory, look_s)
        stack.push_async_callback(second.close)
        pipeline, service = _wire(opened, watch, second, scorer, secret)
        await _start(opened, service, stack)
        if around.model is None:
            for name, work in (("model watch", watch.run()), ("second watch", second.run())):
                stack.push_async_callback(_cancel, asyncio.create_task(work, name=name))
        return Running(service, config, pipeline, opened.applier, opened.memory, stack.pop_all())


async def _open(config: ServeConfig, policy: PolicyConfig, around: Surroundings, stack: AsyncExitStack) -> _Opened:
    logdir = Path(config.log_dir)
    log = LogWriter.open(logdir, sync_delay_s=config.ranking_sync_ms / 2000.0)
    stack.callback(close_log, log)
    live = load_catalogue(logdir, log.end)
    stack.callback(keep_catalogue, logdir, live, log)
    if live.read_lines > SAVE_AFTER_LINES:
        keep_catalogue(logdir, live, log)
    store = around.store
    if store is None:
        store = opened = await asyncio.to_thread(open_store, config)
        stack.push_async_callback(opened.close)
        stack.push_async_callback(_cancel, asyncio.create_task(opened.keep_server(), name="store keeper"))
    await reach(store, config.store)
    applier = Applier(
        logdir, lambda: log.end, store,
        monotonic_ms=around.clock.monotonic_ms, settings=around.applier, windows=config.outcomes,
        recent=log.recent,
    )  # fmt: skip
    stack.callback(applier.close)
    recent = recent_ids(last_lines(logdir, LOG_BYTES), log.end)
    return _Opened(config, policy, around, log, live, recent, store, applier, OwnWrites(applier, log.end))


async def _start(opened: _Opened, service: OnlineService, stack: AsyncExitStack) -> None:
    task = asyncio.create_task(opened.applier.run(), name="applier")
    stack.push_async_callback(_cancel, task)
    if opened.around.actions and not len(opened.live.catalogue):
        await service.put_actions(opened.around.actions)
    if not await opened.applier.wait_applied(opened.log.end, opened.around.start_wait_s):
        _log.warning("the store is still being filled from the log; until then rankings know no person")
    if opened.config.freeze_gc:
        settle_memory()


def _wire(
    opened: _Opened, watch: ModelWatch, second: SecondWatch, scorer: TextScorer | None, secret: bytes
) -> tuple[Pipeline, OnlineService]:
    reader = OnlineReader(opened.store, opened.applier, opened.config.lag_limit_ms)
    parts = Parts(
        config=opened.config,
        policy=opened.policy,
        clock=opened.around.clock,
        reader=reader,
        tables=lambda: opened.applier.population.at(),
        caught_up=opened.own.caught_up,
        live=opened.live,
        light=watch.light,
        scorer=scorer,
        secret=secret,
        counter=DropCounter(),
        second=second,
    )
    pipeline, recheck = pipelines(parts)
    decisions = Decisions(pipeline, recheck, opened.log, opened.live, parts.clock, opened.own.wrote)
    return pipeline, _service(opened, decisions, reader, watch, second, parts.counter)


def _service(
    opened: _Opened,
    decisions: Decisions,
    reader: OnlineReader,
    watch: ModelWatch,
    second: SecondWatch,
    counter: DropCounter,
) -> OnlineService:
    clock, new_id, log, store, applier = (
        opened.around.clock,
        opened.around.new_id,
        opened.log,
        opened.store,
        opened.applier,
    )
    answers = Answers(store, clock.now_s)
    owners = Owners(
        decisions=decisions,
        answers=answers,
        intake=Intake(log, store, clock.now_s, opened.own, opened.recent),
        catalogue=CatalogueDesk(opened.live, log, clock, new_id, opened.own),
        users=UserDesk(store, log, applier, answers, clock, new_id, opened.own),
        reader=reader,
        applier=applier,
        log=log,
        store=store,
        registry=watch.registry,
        counting=counter,
        watch=watch,
        second=second,
    )
    budgets_ms = opened.config.budgets_ms.by_priority()
    return OnlineService(owners, RankingDesk(decisions, answers, clock, budgets_ms, new_id))


async def _cancel(task: asyncio.Task[None]) -> None:
    """Again and again: somebody down the stack may take the cancellation for something else."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.1)
