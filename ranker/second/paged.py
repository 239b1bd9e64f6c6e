"""The second stage as the engine's model: histories in pages, only new events encoded, candidates in micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from features.events import Context
from ranker.inference.history_kv import HistoryHold, HistoryKv
from ranker.inference.kv_spec import KvSpec
from ranker.inference.memory_errors import InvalidSize
from ranker.inference.model import Member, NoHold
from ranker.inference.page_hash import Scope
from ranker.inference.page_store import PageStore
from ranker.inference.shard_key import Shard, ShardKey
from ranker.inference.workspace import Workspace
from ranker.release.manifest import SecondEntry
from ranker.second.buffers import GRANULE, TOGETHER, Buffers, Shapes, memory_of
from ranker.second.config import Sizes
from ranker.second.forward import Asked, Forward, Settle, Tail
from ranker.second.graphs import Capturer
from ranker.second.network import SecondNet
from ranker.second.passes import Span, Views
from ranker.second.tokens import TOKENS_VERSION, CandidateTokens, EventTokens, RequestToken, encode_request
from ranker.second.vocabulary import Known, Vocabulary
from ranker.second.weights import cast, net_from_shards
from ranker.second.windows import Window

Logits = NDArray[np.float32]


class Passes(Protocol):
    """What encodes and scores: `Forward` on the CPU, `NetworkForward` on a GPU."""

    @property
    def pages(self) -> int | None:
        """Pages whose events are encoded at once, None for as many as the buffers have rows for."""
        ...

    def encode(self, views: Views, asked: Asked, span: Span, settle: Settle | None = None) -> None:
        """Fills keys and values of the span's events."""
        ...

    def encode_all(self, views: Views, asked: Asked) -> None:
        """The same of a whole window, of which nothing is kept."""
        ...

    def score(self, views: Views, tails: Sequence[Tail]) -> list[Tensor]:
        """Outcome logits of the candidates of each; new events are encoded with them."""
        ...


@dataclass(frozen=True)
class Ask:
    """Candidates of one request to be scored; nothing in it changes any more.

    Args:
        total: all events of the user.
        tokens, packed: of the window.
        origin_s: time of the window's first event, or of the request where there is none.
    """

    user: str
    total: int
    tokens: EventTokens
    packed: Sequence[bytes]
    request: RequestToken
    candidates: CandidateTokens
    origin_s: float


def ask_of(
    user: str, session: str | None, context: Context, now_s: float, window: Window, candidates: CandidateTokens,
    vocabulary: Vocabulary, sizes: Sizes,
) -> Ask:  # fmt: skip
    """What a request at this moment asks."""
    request = encode_request(now_s, user, session, context, window.last, vocabulary, sizes)
    origin_s = float(window.tokens["time_s"][0]) if len(window.tokens) else request.time_s
    return Ask(user, window.total, window.tokens, window.packed, request, candidates, origin_s)


def kv_spec(scheme: str, sizes: Sizes, page_tokens: int, group: int) -> KvSpec:
    """The pages of a model of these sizes."""
    return KvSpec(scheme, sizes.layers, sizes.dim, page_tokens, group)


class PagedSecond:
    """One version on one device, behind `ranker.inference.model.Model`.

    Args:
        name, version: in the registry.
        micro_batch: candidates of a request at once.
        together: requests that are scored at once on the CPU; a GPU's graphs have one history.
        dtype: of the weights, float32 or bfloat16.
        pages: False keeps nothing: every request encodes its whole window.
        device: of the weights and of the store.
        capturer: of a GPU's graphs; None launches kernels one by one.

    Raises:
        InvalidSize: the pages are another model's.
    """

    def __init__(
        self, name: str, version: str, entry: SecondEntry, known: Known, sizes: Sizes, store: PageStore,
        *, micro_batch: int = 64, together: int = TOGETHER, dtype: torch.dtype = torch.float32, pages: bool = True,
        device: str = "cpu", capturer: Capturer | None = None,
    ) -> None:  # fmt: skip
        if store.full.spec.layers != sizes.layers or store.full.spec.channels != sizes.dim:
            spec = store.full.spec
            raise InvalidSize(
                f"version {version}: pages of {spec.layers} × {spec.channels}, the model has "
                f"{sizes.layers} layers × {sizes.dim}"
            )
        if store.pages.config.longest != sizes.window:
            longest = store.pages.config.longest
            raise InvalidSize(f"version {version}: pages for windows of {longest}, the model has {sizes.window}")
        self.key = f"{name}@{version}"
        self.shards = tuple(ShardKey(name, version, shard) for shard in entry.shards)
        self.vocabulary, self.sizes = Vocabulary(known), sizes
        self._entry, self._known, self._store, self._dtype = entry, known, store, dtype
        self._schema = f"tokens {TOKENS_VERSION}, {str(dtype).removeprefix('torch.')}"
        self._device, self._capturer = device, capturer
        self.shapes = Shapes(sizes.window, store.full.spec.page_tokens, micro_batch, together if self._on_host else 1)
        self._net: SecondNet | None = None
        self._forward: Passes | None = None
        self._views: dict[int, Views] = {}
        self._keeps = pages

    def load(self, shards: Mapping[str, Shard]) -> None:
        """Takes the weights.

        Raises:
            SchemaRefused, WeightsRefused: they cannot serve.
        """
        found = {name: bytes(shard.data) for name, shard in shards.items()}
        self._net = cast(net_from_shards(found, self._entry, self._known, f"version {self.key!r}"), self._dtype)
        self._net.to(self._device)
        self._forward = Forward(self._net, self.shapes.page_tokens) if self._on_host else self._by_network()

    @property
    def _on_host(self) -> bool:
        return self._device == "cpu" and self._capturer is None

    def _by_network(self) -> Passes:
        from ranker.second.network_forward import NetworkForward

        assert self._net is not None, "not loaded"
        return NetworkForward(self._net, self._capturer)

    def unload(self) -> None:
        """Lets go of weights and pages."""
        self._net = self._forward = None
        self._views.clear()
        self._store.pages.retire(self.key)

    def scope(self, user: str) -> Scope:
        """Whose pages, made by what."""
        return Scope(self.key, self._schema, self._store.full.spec.scheme, user)

    def cost(self, payload: Ask) -> int:
        """New events and candidates.

        Raises:
            HistoryTooLong: its window needs more pages than there are.
        """
        if not self._keeps:
            return len(payload.tokens) + len(payload.candidates)
        new = self._store.pages.new_tokens(self.scope(payload.user), payload.packed, payload.total)
        return new + len(payload.candidates)

    def hold(self, payload: Ask) -> HistoryHold | NoHold:
        """Pins the pages of the prefix, and takes those for the rest."""
        if not self._keeps:
            return NoHold(self.cost(payload))
        history = self._store.pages.open(self.scope(payload.user), payload.packed, payload.total)
        return HistoryHold(history, len(payload.candidates))

    @torch.inference_mode()
    def run(self, members: Sequence[Member], workspace: Workspace) -> Sequence[Logits]:
        """Outcome logits [candidates, HEADS] of each."""
        assert self._net is not None and self._forward is not None, "not loaded"
        views, found = self._views_of(workspace), list[Logits]()
        for at in range(0, len(members), self.shapes.together):
            found += self._together(members[at : at + self.shapes.together], views)
        for member in members:
            if isinstance(member.hold, HistoryHold):
                member.hold.history.commit()
        return found

    def _views_of(self, workspace: Workspace) -> Views:
        """Buffers in a batch's workspace: the same memory as in its last batch, so they are cut once."""
        assert self._net is not None, "not loaded"
        where = memory_of(workspace, self.sizes, self.shapes).data_ptr()
        found = self._views.get(where)
        if found is None:
            found = self._views[where] = Views(Buffers(workspace, self._net, self.shapes), self.sizes)
        return found

    def _together(self, members: Sequence[Member], views: Views) -> list[Logits]:
        """All but the newest events of one after the other, then the candidates of all."""
        assert self._forward is not None
        begun = [self._begin(member, slot, views) for slot, member in enumerate(members)]
        found = self._forward.score(views, [tail for tail, _ in begun])
        for _, rest in begun:
            for _ in rest:  # keeps what was encoded with the candidates
                pass
        return [logits.numpy() for logits in found]

    def _begin(self, member: Member, slot: int, views: Views) -> tuple[Tail, Iterator[slice]]:
        """Encodes what is not encoded with the candidates; and what is to be gone through once they are scored."""
        assert self._forward is not None
        ask: Ask = member.payload
        asked = Asked(ask.tokens, ask.request, ask.candidates, ask.origin_s, slot)
        if not isinstance(member.hold, HistoryHold):
            self._forward.encode_all(views, asked)
            return Tail(asked), iter(())
        buffers = views.buffers
        kv = HistoryKv(self._store, member.hold.history, buffers.keys[slot], buffers.values[slot])
        stretches = kv.stretches(self._forward.pages or self.shapes.pages)
        for stretch in stretches:
            span = Span(stretch.start, stretch.stop)
            full = span.full(self.shapes.page_tokens)
            newest = span.stop == len(ask.tokens) and span.block == (span.stop - 1) // GRANULE * GRANULE
            if newest and not full and len(ask.candidates):
                return Tail(asked, span), stretches
            settle = partial(kv.settle, pages=full, keys=buffers.kept_keys, values=buffers.kept_values)
            self._forward.encode(views, asked, span, settle)
        return Tail(asked), stretches
