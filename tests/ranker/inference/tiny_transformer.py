"""A small real model: a causal transformer over paged events, and candidates scored against them.

Two layers of two heads; events and candidates are embedded by number. It is here to drive the engine with tensors,
pages and shards as the second stage does, and it has a dense twin without any of these as its oracle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from safetensors.numpy import load as parse
from safetensors.numpy import save as render

from ranker.inference.history_kv import HistoryHold, HistoryKv
from ranker.inference.kv_spec import KvSpec
from ranker.inference.model import Member
from ranker.inference.page_store import PageStore
from ranker.inference.pages import PageConfig, Scope
from ranker.inference.shard_key import Shard, ShardKey
from ranker.inference.workspace import Workspace

LAYERS, HEADS, WIDTH, PAGE, LONGEST, VOCABULARY = 2, 2, 16, 4, 32, 64
SPEC = KvSpec("fp32", LAYERS, WIDTH, PAGE, group=PAGE)
Weights = Mapping[str, torch.Tensor]
KeysValues = list[tuple[torch.Tensor, torch.Tensor]]


def page_config(pages: int, tails: int = 16) -> PageConfig:
    return PageConfig(pages, tails, PAGE, LONGEST)


def weights_of(seed: int) -> dict[str, bytes]:
    """Two shards of random weights in safetensors."""
    draw = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray:
        return np.asarray(draw.standard_normal(shape) / np.sqrt(shape[0]), dtype=np.float32)

    tables = {"events": matrix(VOCABULARY, WIDTH), "positions": matrix(LONGEST, WIDTH), "head": matrix(WIDTH, 1)}
    layers = {
        f"{layer}.{name}": matrix(WIDTH, WIDTH)
        for layer in range(LAYERS)
        for name in ("q", "k", "v", "o", "up", "down")
    }
    return {"tables.safetensors": render(tables), "layers.safetensors": render(layers)}


@dataclass(frozen=True)
class Ask:
    """Scores wanted.

    Args:
        events: the user's, oldest first, numbers below the vocabulary.
        candidates: numbers below the vocabulary.
    """

    user: str
    events: tuple[int, ...]
    candidates: tuple[int, ...]

    @property
    def encoded(self) -> list[bytes]:
        return [bytes([event]) for event in self.events]


class TinyTransformer:
    """One version on the CPU; its weights lie in the model's own tensors, its histories in the page store."""

    def __init__(self, name: str, version: str, store: PageStore) -> None:
        self.name, self.version, self.store = name, version, store
        self.shards = tuple(ShardKey(name, version, f"{part}.safetensors") for part in ("tables", "layers"))
        self.weights: Weights = {}
        self.encoded_tokens = 0

    def load(self, shards: Mapping[str, Shard]) -> None:
        self.weights = weights_from({name: bytes(shard.data) for name, shard in shards.items()})

    def unload(self) -> None:
        self.weights = {}
        self.store.pages.retire(f"{self.name}@{self.version}")

    def cost(self, payload: Ask) -> int:
        return self.store.pages.new_tokens(self._scope(payload), payload.encoded) + len(payload.candidates)

    def hold(self, payload: Ask) -> HistoryHold:
        return HistoryHold(self.store.pages.open(self._scope(payload), payload.encoded), len(payload.candidates))

    @torch.inference_mode()
    def run(self, members: Sequence[Member], workspace: Workspace) -> Sequence[list[float]]:
        results = [self._scores(number, member, workspace) for number, member in enumerate(members)]
        for member in members:
            member.hold.history.commit()  # type: ignore[attr-defined]  # ours: see `hold`
        return results

    def _scope(self, payload: Ask) -> Scope:
        return Scope(f"{self.name}@{self.version}", "tiny", self.store.full.spec.scheme, payload.user)

    def _scores(self, number: int, member: Member, workspace: Workspace) -> list[float]:
        hold = member.hold
        assert isinstance(hold, HistoryHold)
        shape = (LAYERS, hold.history.layout.tokens, WIDTH)
        keys, values = (workspace.tensor(f"{name} {number}", shape) for name in ("keys", "values"))
        kv = HistoryKv(self.store, hold.history, keys, values)
        for span in kv.spans():
            new = [event[0] for event in hold.history.window[span]]
            self.encoded_tokens += len(new)
            seen = zip(keys[:, : span.stop], values[:, : span.stop], strict=True)
            encode(self.weights, new, span.start, list(seen))
        return score(self.weights, member.payload.candidates, list(zip(kv.keys, kv.values, strict=True)))


def weights_from(files: Mapping[str, bytes]) -> Weights:
    """Tensors of both shards."""
    return {
        name: torch.from_numpy(array.copy()) for content in files.values() for name, array in parse(content).items()
    }


def encode(weights: Weights, new: Sequence[int], cached: int, cache: KeysValues) -> None:
    """Fills keys and values, `[tokens, width]` a layer, from position `cached` on."""
    if not new:
        return
    inner = weights["events"][list(new)] + weights["positions"][cached : cached + len(new)]
    seen = torch.arange(cached + len(new))
    visible = seen[None, :] <= seen[cached:, None]
    for layer, (keys, values) in enumerate(cache):
        keys[cached:], values[cached:] = inner @ weights[f"{layer}.k"], inner @ weights[f"{layer}.v"]
        inner = block(weights, layer, inner, keys, values, visible)


def score(weights: Weights, candidates: Sequence[int], cache: KeysValues) -> list[float]:
    """Each candidate sees the history and itself only."""
    inner = weights["events"][list(candidates)]
    for layer, (keys, values) in enumerate(cache):
        own_key, own_value = inner @ weights[f"{layer}.k"], inner @ weights[f"{layer}.v"]
        rows = [
            block(weights, layer, inner[i : i + 1], torch.cat([keys, own_key[i : i + 1]]),
                  torch.cat([values, own_value[i : i + 1]]), None)
            for i in range(len(candidates))
        ]  # fmt: skip
        inner = torch.cat(rows)
    found: list[float] = (inner @ weights["head"])[:, 0].tolist()
    return found


def block(
    weights: Weights,
    layer: int,
    inner: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor | None,
) -> torch.Tensor:
    """Attention and a feed-forward part, each added to what came in."""

    def heads(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(len(tensor), HEADS, WIDTH // HEADS).transpose(0, 1)

    query = heads(inner @ weights[f"{layer}.q"])
    seen = torch.nn.functional.scaled_dot_product_attention(query, heads(keys), heads(values), visible)
    inner = inner + seen.transpose(0, 1).reshape(len(inner), WIDTH) @ weights[f"{layer}.o"]
    return inner + torch.relu(inner @ weights[f"{layer}.up"]) @ weights[f"{layer}.down"]


@torch.inference_mode()
def dense(files: Mapping[str, bytes], ask: Ask) -> list[float]:
    """The oracle: everything anew, one request, no pages. For histories that fit the window."""
    assert len(ask.events) <= LONGEST
    weights = weights_from(files)
    cache = [(torch.zeros(len(ask.events), WIDTH), torch.zeros(len(ask.events), WIDTH)) for _ in range(LAYERS)]
    encode(weights, ask.events, 0, cache)
    return score(weights, ask.candidates, cache)
