"""The second stage in the service: which version scores, and what becomes of one request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ranker.clock import Clock
from ranker.degraded import Degraded
from ranker.inference.engine_errors import EngineError, Rejected
from ranker.inference.memory_errors import PlannedMemoryError
from ranker.inference.memory_report import MemorySource
from ranker.inference.shard_errors import ShardError
from ranker.release.errors import RegistryError
from ranker.release.manifest import Manifest, SecondEntry
from ranker.release.registry import Registry
from ranker.retry import Retry
from ranker.second.config import HEADS, Sizes
from ranker.second.device import MODEL, SecondDevice, capturer_of, open_device
from ranker.second.errors import SecondError
from ranker.second.happenings import Course
from ranker.second.histories import Histories
from ranker.second.order import one_order, passed_on
from ranker.second.paged import Ask, PagedSecond, ask_of
from ranker.second.tokens import encode_candidates
from ranker.second.warm import warm_asks
from ranker.second.weights import VOCABULARY_FILE, known_from, servable, sizes_from, utility_of
from ranker.second.windows import Windows
from ranker.second_config import ServeSecond
from ranker.stages.second import COLD, Rescored
from ranker.types import Ranking

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
NOT_THERE = frozenset(("loading", "unknown_model", "retired", "closing"))
OVERLOADED = frozenset(("queue_full", "deadline", "busy"))

_log = logging.getLogger(__name__)

OpenHistories = Callable[[int, Callable[[str], None]], Histories]
"""From the happenings to keep of each user, and who is told of a user to be forgotten."""


@dataclass(frozen=True)
class Serving:
    """A version that scores.

    Args:
        worth: of each of HEADS.
        passed_on: candidates that it is asked about.
    """

    version: str
    paged: PagedSecond
    windows: Windows
    worth: tuple[float, ...]
    passed_on: int


class SecondDesk:
    """Follows the light stage's version: the second stage of another one was made for other scores.

    Nothing is opened, and the log is not followed, before a version has a second stage.

    Args:
        memory: pools that `/v1/memory` lists; the device's is added and taken out again.
    """

    def __init__(
        self, registry: Registry, histories: OpenHistories, clock: Clock, config: ServeSecond,
        memory: list[MemorySource],
    ) -> None:  # fmt: skip
        self.loads = self.failures = 0
        self.serving: Serving | None = None
        self._registry, self._open_histories, self._clock, self._config = registry, histories, clock, config
        self._memory = memory
        self._source: MemorySource | None = None
        self._device: SecondDevice | None = None
        self._histories: Histories | None = None
        self._following: asyncio.Task[None] | None = None
        self._followed: str | None = None
        self._retry = Retry()
        self._said: tuple[str | None, str] | None = None
        self._loading = False

    async def run(self, version: Callable[[], str | None], look_s: float) -> None:
        """Keeps the second stage at the light stage's version until cancelled."""
        while True:
            await self.follow(version())
            await asyncio.sleep(look_s)

    async def follow(self, version: str | None) -> None:
        """Makes the second stage of this version the one that scores.

        One that cannot serve is logged and left out, and tried again after some looks: it may have been the disk.
        """
        if version == self._followed and not self._retry.due():
            return
        self._followed = version
        self._retry.failed()
        before, self.serving = self.serving, None
        try:
            entry, manifest = await asyncio.to_thread(self._entry, version)
            if entry is not None and manifest is not None:
                self.serving = await self._load(entry, manifest)
                self.loads += 1
                _log.info("second version %s serves", version)
            self._retry.settled()
            self._said = None
        except (RegistryError, SecondError, PlannedMemoryError, ShardError, EngineError, OSError) as error:
            self.failures += 1
            if (version, str(error)) != self._said:  # it is tried again and again
                _log.error("the second stage of version %s cannot serve, the light order stands: %s", version, error)
            self._said = version, str(error)
        if before is not None and self._device is not None and before.paged.sizes == self._device.sizes:
            await self._device.engine.retire(before.paged.key)

    async def rescore(self, ranking: Ranking) -> Rescored | Degraded | str | None:
        """Scores of the best candidates by what their user did."""
        serving, device, histories = self.serving, self._device, self._histories
        if serving is None or device is None or histories is None:
            return Degraded.SECOND_LOADING if self._loading else None
        if ranking.versions.get("light") != serving.version:
            return Degraded.SECOND_LOADING
        course = histories.of(ranking.request.user)
        if course is None:
            return Degraded.SECOND_LOADING
        return await self._scored(ranking, course, serving, device) if course.total else COLD

    def forget(self, user: str) -> None:
        """Erases what is encoded of a user."""
        if self.serving is not None:
            self.serving.windows.forget(user)
        if self._device is not None:
            self._device.store.pages.forget(user)

    async def close(self) -> None:
        """Ends the device and what follows the log."""
        self.serving, self._followed = None, None
        await self._end_device()
        self._end_histories()

    def status(self) -> dict[str, object]:
        """Figures for metrics; of the engine only while there is one."""
        histories, device = self._histories, self._device
        return {
            "version": self.serving.version if self.serving is not None else None,
            "loads": self.loads,
            "failures": self.failures,
            "users": len(histories) if histories is not None else 0,
            "happenings": histories.happenings if histories is not None else 0,
            "users_left": histories.left if histories is not None else 0,
            "users_away": histories.away if histories is not None else 0,
            "users_back": histories.back if histories is not None else 0,
            "users_lost": histories.lost if histories is not None else 0,
            "engine": device.engine.metrics() if device is not None else None,
        }

    # ---- versions

    def _entry(self, version: str | None) -> tuple[SecondEntry | None, Manifest | None]:
        if version is None:
            return None, None
        manifest = self._registry.manifest(version)
        return servable(manifest), manifest

    async def _load(self, entry: SecondEntry, manifest: Manifest) -> Serving:
        self._loading = True
        try:
            paged = await self._opened(entry, manifest.version)
        finally:
            self._loading = False
        worth = tuple(entry.worth.get(head, 0.0) for head in HEADS)
        windows = Windows(paged.vocabulary, paged.sizes)
        return Serving(manifest.version, paged, windows, worth, self._config.passed_on or entry.passed_on)

    async def _opened(self, entry: SecondEntry, version: str) -> PagedSecond:
        where = f"model version {version!r}"
        sizes = sizes_from(entry, where)
        packed = await asyncio.to_thread(self._registry.read, version, VOCABULARY_FILE)
        known = known_from(packed, entry, where)
        self._follow_histories(sizes.window + 1)
        device = await self._device_for(sizes)
        paged = PagedSecond(
            MODEL, version, entry, known, sizes, device.store,
            micro_batch=self._config.micro_batch, together=device.together, dtype=DTYPES[self._config.weights],
            pages=self._config.pages, device=self._config.device, capturer=capturer_of(self._config),
        )  # fmt: skip
        warm = warm_asks(sizes, min(self._config.passed_on or entry.passed_on, 1000))
        await device.engine.load(paged.key, paged, warm=warm)
        for ask in warm:
            device.store.pages.forget(ask.user)
        return paged

    async def _device_for(self, sizes: Sizes) -> SecondDevice:
        """The device that is there, or one for these sizes in its place."""
        if self._device is None or self._device.sizes != sizes:
            await self._end_device()
            self._device = open_device(sizes, self._registry, self._config)
            self._source = self._device.engine.memory_source(MODEL)
            self._memory.append(self._source)
        return self._device

    async def _end_device(self) -> None:
        device, self._device = self._device, None
        if device is not None:
            if self._source in self._memory:
                self._memory.remove(self._source)
            await device.close()

    def _follow_histories(self, keep: int) -> None:
        """Follows the log from now on; anew where a version reads further back than what is kept."""
        if self._histories is not None and self._histories.keep >= keep:
            return
        self._end_histories()
        self._histories = self._open_histories(keep, self.forget)
        self._following = asyncio.create_task(self._histories.run(), name="histories")

    def _end_histories(self) -> None:
        if self._following is not None:
            self._following.cancel()
        if self._histories is not None:
            self._histories.close()
        self._histories = self._following = None

    # ---- requests

    async def _scored(
        self, ranking: Ranking, course: Course, serving: Serving, device: SecondDevice
    ) -> Rescored | Degraded:
        assert ranking.scores is not None, "the light stage runs first"
        rows = passed_on(ranking.scores, serving.passed_on)
        ask = _ask(ranking, course, serving, rows.tolist())
        left_ms = ranking.deadline_ms - self._clock.monotonic_ms() - self._config.reserve_ms
        priority = "shadow" if ranking.traffic == "replay" else ranking.request.priority
        engine, alone = device.engine, device.engine.open_requests == 0
        try:
            request = engine.request(serving.paged.key, ask, priority=priority, budget_ms=max(0.0, left_ms))
            logits = await engine.submit(request, ask)
        except Rejected as rejection:
            return _why_not(rejection, alone)
        scores = utility_of(np.asarray(logits, np.float64), serving.worth)
        return Rescored(serving.version, one_order(ranking.scores, rows, scores))


def _ask(ranking: Ranking, course: Course, serving: Serving, rows: Sequence[int]) -> Ask:
    assert ranking.features is not None and ranking.scores is not None, "the light stage runs first"
    request, pairs, paged = ranking.request, ranking.candidates, serving.paged
    actions, targets = [pairs.actions[row] for row in rows], [pairs.targets[row] for row in rows]
    some = list(rows)
    candidates = encode_candidates(actions, targets, ranking.features[some], ranking.scores[some], paged.vocabulary)
    window = serving.windows.of(request.user, course)
    return ask_of(
        request.user, request.session, request.context, ranking.now_s, window, candidates, paged.vocabulary,
        paged.sizes,
    )  # fmt: skip


def _why_not(rejection: Rejected, alone: bool) -> Degraded:
    """A deadline that cannot be met with nobody ahead is the caller's budget; else it is the load."""
    if rejection.reason in NOT_THERE:
        return Degraded.SECOND_LOADING
    if rejection.reason == "deadline" and alone:
        return Degraded.SECOND_BUDGET
    return Degraded.SECOND_OVERLOADED if rejection.reason in OVERLOADED else Degraded.SECOND_ERROR
