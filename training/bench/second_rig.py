"""Second stages with random weights, paged and recomputing, for the bench and the soak."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from features.registry import COLUMNS, FINGERPRINT
from ranker.inference.engine import Engine, open_engine
from ranker.inference.kv_pages import KvPages, TailPages
from ranker.inference.model import Member, NoHold
from ranker.inference.page_store import PageStore, open_store
from ranker.inference.pages import PageConfig
from ranker.inference.pool import MemoryPool
from ranker.inference.scheduler_config import SchedulerConfig
from ranker.inference.shard_key import Shard, ShardKey
from ranker.inference.shards import ShardCache
from ranker.inference.sizes import align_up
from ranker.inference.workspace import Workspace, Workspaces
from ranker.release.registry import Registry
from ranker.release.shard_source import RegistrySource
from ranker.second.buffers import TOGETHER, Buffers, Shapes, workspace_bytes
from ranker.second.config import HEADS, SecondConfig, Sizes
from ranker.second.device import GROUP, MODEL
from ranker.second.forward import Asked, Forward
from ranker.second.network import SecondNet
from ranker.second.paged import Ask, Logits, PagedSecond, kv_spec
from ranker.second.passes import Views
from ranker.second.tokens import CLOCK, CandidateTokens, EventTokens, RequestToken, event_dtype, pack_events
from ranker.second.vocabulary import Known, Vocabulary
from ranker.second.weights import to_files

KNOWN = Known(
    actions=[f"a{number}" for number in range(1000)],
    kinds=["accepted", "completed", "dismissed", "offered", *(f"i:{number}" for number in range(20))],
    surfaces=[f"s{number}" for number in range(10)],
    targets=[f"t{number}" for number in range(20)],
    words=list(range(1, 4001)),
)
PAGE_TOKENS = 32
DENSE_TOKENS = 128
"""Events that are encoded at once where no pages are kept: the fastest of 32, 64, 128 and 256 here."""
MICRO_BATCH = 64
MIB = 1 << 20
SLACK = 1 << 18
USED = 0.85
"""Of a pool's limit, as it serves."""
MOST_BATCH = 16
"""Requests of a batch; each may need two exact tails."""


def small(window: int) -> Sizes:
    """The small model, with another window."""
    return Sizes(dim=128, layers=4, heads=4, feed_forward=512, window=window, terms=16)


def random_net(sizes: Sizes, seed: int = 0, known: Known = KNOWN) -> SecondNet:
    """Weights of a trained model's size, so that every event and word matters."""
    torch.manual_seed(seed)
    net = SecondNet(sizes, Vocabulary(known).rows, len(COLUMNS)).eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            table = name.split(".")[0] in ("actions", "kinds", "surfaces", "targets", "words")
            if parameter.ndim > 1:
                parameter.normal_(std=0.1 if table else parameter.shape[1] ** -0.5)
                if table:
                    parameter[0] = 0.0
    return net.requires_grad_(False)


def random_events(count: int, sizes: Sizes, draw: np.random.Generator) -> EventTokens:
    """Events some minutes apart, in sessions."""
    tokens = np.zeros(count, event_dtype(sizes.terms))
    tokens["gap_s"] = draw.exponential(120.0, count)
    tokens["time_s"] = 1.7e9 + np.cumsum(tokens["gap_s"].astype(np.float64))
    for name, most in (("action", 1000), ("kind", 24), ("surface", 10), ("target", 20)):
        tokens[name] = draw.integers(1, most, count)
    tokens["session"] = draw.integers(1, 1 << 16, count // 10 + 1).repeat(10)[:count]
    tokens["fresh"] = np.arange(count) % 10 == 0
    words = draw.integers(1, 4000, tokens["terms"].shape)
    tokens["terms"] = words * (np.arange(sizes.terms) < draw.integers(0, 9, (count, 1)))
    return tokens


def random_candidates(count: int, draw: np.random.Generator) -> CandidateTokens:
    """Candidates, a tenth of whose features are not known."""
    features = draw.standard_normal((count, len(COLUMNS))).astype(np.float32)
    features[draw.random(features.shape) < 0.1] = np.nan
    return CandidateTokens(
        draw.integers(1, 1000, count).astype(np.int32), draw.integers(1, 20, count).astype(np.int32),
        features, draw.standard_normal(count).astype(np.float32),
    )  # fmt: skip


def ask_of(user: str, tokens: EventTokens, packed: Sequence[bytes], total: int, candidates: CandidateTokens) -> Ask:
    """A request a minute after a user's last event.

    Args:
        total: all events of the user.
    """
    last = tokens[-1]
    words = np.zeros(tokens["terms"].shape[1], np.int32)
    words[:4] = 5, 6, 7, 8
    session, clock = int(last["session"]), np.zeros(CLOCK, np.float32)
    request = RequestToken(float(last["time_s"]) + 60.0, 60.0, 3, 2, session, 0, clock, words, 1)
    return Ask(user, total, tokens, packed, request, candidates, float(tokens["time_s"][0]))


class Recomputing:
    """The same model without pages: every request encodes its whole history, in the largest blocks that pay."""

    def __init__(self, net: SecondNet, key: str = "recomputing@1") -> None:
        self.key = key
        self.shards: tuple[ShardKey, ...] = ()
        self.shapes = self.shapes_of(net.sizes)
        self._net, self._forward = net, Forward(net, self.shapes.page_tokens)
        self._workspaces: Workspaces | None = None
        self._views: Views | None = None

    @staticmethod
    def shapes_of(sizes: Sizes) -> Shapes:
        """What is computed at once."""
        return Shapes(sizes.window, min(DENSE_TOKENS, sizes.window), MICRO_BATCH)

    def load(self, shards: Mapping[str, Shard]) -> None:
        """Has its weights."""

    def unload(self) -> None:
        """Has nothing else."""

    def cost(self, payload: Ask) -> int:
        """All of the window, and the candidates."""
        return len(payload.tokens) + len(payload.candidates)

    def hold(self, payload: Ask) -> NoHold:
        """Pins nothing."""
        return NoHold(self.cost(payload))

    @torch.inference_mode()
    def run(self, members: Sequence[Member], workspace: Workspace) -> Sequence[Logits]:
        """Outcome logits of each."""
        views = self._views_of(workspace)
        return [self._logits(member.payload, views) for member in members]

    @torch.inference_mode()
    def answer(self, ask: Ask) -> Logits:
        """One request, without an engine, in buffers of its own."""
        if self._workspaces is None:
            nbytes = align_up(workspace_bytes(self._net.sizes, self.shapes))
            self._workspaces = Workspaces(MemoryPool(2 * nbytes + MIB), nbytes)
        with self._workspaces.batch() as workspace:
            return self._logits(ask, self._views_of(workspace))

    def _views_of(self, workspace: Workspace) -> Views:
        buffers = Buffers(workspace, self._net, self.shapes)
        if self._views is None or self._views.buffers.histories.data_ptr() != buffers.histories.data_ptr():
            self._views = Views(buffers, self._net.sizes)
        return self._views

    def _logits(self, ask: Ask, views: Views) -> Logits:
        asked = Asked(ask.tokens, ask.request, ask.candidates, ask.origin_s)
        return self._forward.anew(views, asked).numpy()


@dataclass(frozen=True)
class Rig:
    """A paged model as it is served, and the parts that it is served by."""

    sizes: Sizes
    pool: MemoryPool
    store: PageStore
    cache: ShardCache
    paged: PagedSecond
    workspaces: Workspaces

    def answer(self, ask: Ask) -> Logits:
        """One request, without the engine: finds its pages, encodes what is new, scores."""
        return self.answers([ask])[0]

    def answers(self, asks: Sequence[Ask]) -> Sequence[Logits]:
        """The same of a batch."""
        for ask in asks:
            self.paged.cost(ask)
        holds = [self.paged.hold(ask) for ask in asks]
        try:
            with self.workspaces.batch() as workspace:
                return self.paged.run([Member(ask, hold) for ask, hold in zip(asks, holds, strict=True)], workspace)
        finally:
            for hold in reversed(holds):
                hold.release()


@contextmanager
def rig(folder: Path, sizes: Sizes, *, scheme: str = "int8", fitting: float = 8.0) -> Iterator[Rig]:
    """A paged model with its weights, on this thread.

    Args:
        folder: for its registry.
        fitting: histories of whole windows that fit into memory.
    """
    files, entry = to_files(random_net(sizes), KNOWN, SecondConfig(), dict.fromkeys(HEADS, True), light="0")
    registry = Registry(folder)
    version = registry.publish(files, schema=FINGERPRINT, kind="second").version
    spec = kv_spec(scheme, sizes, PAGE_TOKENS, GROUP)
    pages = max(math.ceil(fitting * sizes.window / PAGE_TOKENS), 2 * math.ceil(sizes.window / PAGE_TOKENS))
    config = PageConfig(pages, math.ceil(fitting) + 2 * MOST_BATCH, PAGE_TOKENS, sizes.window)
    # two workspaces: one for this thread, one for an engine
    workspace = align_up(workspace_bytes(sizes, Shapes(sizes.window, PAGE_TOKENS, MICRO_BATCH, TOGETHER)))
    needed = align_up(KvPages.bytes_needed(spec, pages)) + align_up(TailPages.bytes_needed(spec, config.tails))
    pool = MemoryPool(int((needed + 2 * workspace + SLACK) / USED))
    store = open_store(pool, spec, config)
    cache = ShardCache(capacity_bytes=1 << 30, source=RegistrySource({MODEL: registry}))
    paged = PagedSecond(MODEL, version, entry, KNOWN, sizes, store, micro_batch=MICRO_BATCH)
    paged.load({key.shard: Shard(key, memoryview(files[key.shard])) for key in paged.shards})
    yield Rig(sizes, pool, store, cache, paged, Workspaces(pool, workspace))


def engine_of(found: Rig, limits: SchedulerConfig) -> Engine:
    """An engine for the rig's paged model, which it then loads anew; one thread computes."""
    workspace = align_up(workspace_bytes(found.sizes, found.paged.shapes))
    return open_engine(
        limits, found.pool, workspace_bytes=workspace, cache=found.cache, pages=found.store.pages, begin=_one_thread
    )


def _one_thread() -> None:
    torch.set_num_threads(1)


class Users:
    """Histories that grow by one event at each request.

    Args:
        length: events of each at the start, and about as many later: the window moves on as it does in the service.
    """

    def __init__(self, count: int, length: int, sizes: Sizes, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self._length, self._sizes, self.draw = length, sizes, draw
        self._tokens = [random_events(length, sizes, draw) for _ in range(count)]
        self._packed = [pack_events(tokens) for tokens in self._tokens]
        self._named = [f"u{number}" for number in range(count)]
        self._candidates = [random_candidates(50, draw) for _ in range(16)]
        self.joined = count

    def __len__(self) -> int:
        return len(self._tokens)

    def ask(self, row: int, *, new: bool = True, candidates: int | None = None) -> Ask:
        """What one of them asks next.

        Args:
            new: whether something happened since.
        """
        if new:
            self._append(row)
        tokens, packed = self._tokens[row], self._packed[row]
        chosen = self._candidates[int(self.draw.integers(len(self._candidates)))]
        if candidates is not None and candidates != len(chosen):
            chosen = random_candidates(candidates, self.draw)
        return ask_of(self._named[row], tokens, packed, len(tokens), chosen)

    def leave(self, row: int) -> str:
        """Somebody else in one's place, with a history as long; who left."""
        left = self._named[row]
        self.joined += 1
        self._named[row] = f"u{self.joined}"
        return left

    def _append(self, row: int) -> None:
        if len(self._tokens[row]) == self._sizes.window:
            # as when half of the window is dropped: what is left is another window, and another's pages
            self._tokens[row] = self._tokens[row][self._sizes.window - self._length + 1 :].copy()
            self._packed[row] = pack_events(self._tokens[row])
            self._named[row] += "+"
        event = random_events(1, self._sizes, self.draw)
        event["time_s"] = self._tokens[row]["time_s"][-1] + event["gap_s"]
        self._tokens[row] = np.concatenate([self._tokens[row], event])
        self._packed[row] = [*self._packed[row], event.tobytes()]
