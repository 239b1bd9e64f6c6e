"""What the engine knows of a model: what a request costs, what it pins, how a version loads, how a batch runs.

    loop        cost(payload)             when a request is made: new events + candidates
    any thread  load(shards), unload()    once a version, before its first batch and after its last
    device      hold(payload)             for each request of a batch, then
    device      run(members, workspace)   once for the batch, or in parts after a failure

The device's calls all come from its one thread; `cost` and `load` may run beside them.

A model over paged histories, plugged in. The payload is whatever its caller passes to `submit`:

    class Ranker:
        shards = (ShardKey("second", "7", "w.safetensors"),)

        def __init__(self, key, store):          # "second@7", a PageStore of the pool, shared by all versions
            self.key, self.store, self.pages = key, store, store.pages

        def scope(self, payload):                # a new version, schema or format shares no page with the old
            return Scope(self.key, SCHEMA, self.store.full.spec.scheme, payload.user)

        def load(self, shards):                  # verified bytes; copy what is kept
            self.net = Net(safetensors.torch.load(bytes(shards["w.safetensors"].data)))

        def unload(self):
            self.net = None
            self.pages.retire(self.key)

        def cost(self, payload):                 # payload.events: bytes of all that the model reads of each event
            return self.pages.new_tokens(self.scope(payload), payload.events, payload.total) + len(payload.candidates)

        def hold(self, payload):                 # pins the prefix's pages, takes those for the rest; PagesBusy passes
            history = self.pages.open(self.scope(payload), payload.events, payload.total)
            return HistoryHold(history, len(payload.candidates))

        @torch.inference_mode()                  # it belongs to a thread: set it here
        def run(self, members, workspace):
            results = []
            for number, member in enumerate(members):
                history = member.hold.history
                shape = (LAYERS, history.layout.tokens, CHANNELS)
                keys, values = (workspace.tensor(f"{name} {number}", shape) for name in ("keys", "values"))
                kv = HistoryKv(self.store, history, keys, values)
                for span in kv.spans():          # new events only, page by page; positions are the window's
                    self.net.encode(member.payload, span, kv.keys, kv.values)
                results.append(self.net.score(member.payload.candidates, kv.keys, kv.values).tolist())
            for member in members:
                member.hold.history.commit()     # last: a run that fails must have published nothing
            return results

    pool = MemoryPool(limit_bytes)
    workspaces = 8 << 20                         # what the largest batch asks for; PoolExhausted names what did not fit
    spec = KvSpec("int8", LAYERS, CHANNELS)      # fp32, bf16, int8 or int4; nothing else changes
    store = open_store(pool, spec, config_that_fits(pool.largest_run_bytes - workspaces, spec, longest=1024))
    engine = open_engine(config, pool, workspace_bytes=workspaces, cache=cache, pages=store.pages,
                         begin=lambda: torch.set_num_threads(1))
    await engine.load("second@7", Ranker("second@7", store), warm=[largest, typical])
    memory_sources.append(engine.memory_source("second"))
    scores = await engine.submit(engine.request("second@7", payload, priority="normal", budget_ms=40.0), payload)

`Rejected` has the reason and when to retry. Cancelling is leaving. `tests/ranker/inference/tiny_transformer.py` runs.
Shadow traffic is the same call with priority `shadow`: it runs when nothing else can. When pages left between `cost`
and `hold` the request is budgeted again by `hold.tokens`; on PagesBusy it goes back to the queue; neither is the
model's to handle. Several members may be one user's: each has pages of its own for what is new. To get the same bits
whatever the batch, compute in shapes that do not depend on it (a span padded to a page, a fixed number of candidates).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ranker.inference.shard_key import Shard, ShardKey
from ranker.inference.workspace import Workspace

Payload = Any
"""What a request is about; the engine only carries it from the caller to the model."""

Result = Any
"""What the model answers; carried back."""


class Hold(Protocol):
    """What one request has pinned while its batch runs, such as the pages of its user's history."""

    @property
    def tokens(self) -> int:
        """What it costs now that its pages are pinned; more than `cost` said if some of them left meanwhile."""
        ...

    def release(self) -> None:
        """Unpins; called exactly once, however the batch ends."""
        ...


@dataclass(frozen=True)
class Member:
    """One request of a batch, as the model sees it."""

    payload: Payload
    hold: Hold


class Model(Protocol):
    """One version of a model on one device."""

    @property
    def shards(self) -> Sequence[ShardKey]:
        """The files it is made of; they stay pinned from before `load` until after `unload`."""
        ...

    def load(self, shards: Mapping[str, Shard]) -> None:
        """Takes its weights from verified shards, by shard name; may be slow. What it raises refuses the version."""
        ...

    def unload(self) -> None:
        """Lets go of every view of the shards; no batch follows."""
        ...

    def cost(self, payload: Payload) -> int:
        """Tokens that a request costs as things are now.

        Raises:
            HistoryTooLong, InvalidSize: it could never run.
        """
        ...

    def hold(self, payload: Payload) -> Hold:
        """Pins what a request reads and writes.

        Raises:
            PagesBusy: not now; the request goes back to the queue. Any other error is that request's own.
        """
        ...

    def run(self, members: Sequence[Member], workspace: Workspace) -> Sequence[Result]:
        """One result for each member, in order; nothing that is returned may be a view of the workspace.

        An error fails the batch, which is then run in parts to find out whose fault it was. So a run that failed must
        have published nothing.
        """
        ...


class NoHold:
    """The hold of a model that pins nothing.

    Args:
        tokens: what the request costs.
    """

    __slots__ = ("tokens",)

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def release(self) -> None:
        """There is nothing to unpin."""
