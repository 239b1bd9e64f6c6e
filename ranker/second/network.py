"""The transformer: events are encoded once, causally; candidates read them and themselves only.

So does a request, as if it were a candidate of no action. What it makes of the history foretells the next action among
all, and its logit of a candidate's action is a part of that candidate's score. It is learned by a loss of its own.

How far each part of a score is trusted is found on questions held out, apart for requests where something is typed: a
gradient would trust a part as far as it knows its examples by heart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from ranker.second.attention import attend_causal, attend_history, frequencies, merge_self, rotate, turns
from ranker.second.batches import CandidateBatch, EventBatch
from ranker.second.config import HEADS, Sizes
from ranker.second.light_reading import LightReading
from ranker.second.tokens import CLOCK

SPREAD = 0.02
PARTS = ("light", "opinion", "correction", "told")
"""Of a score, each of which is trusted more or less."""
UNTRIED = (1.0, 1.0, 1.0, 0.0)
"""As they are learned: what is foretold has no part in it."""


@dataclass(frozen=True)
class Heard:
    """What candidates, and the requests themselves, made of a history; all normalised.

    Args:
        candidates: [batch, candidates, dim].
        requests: [batch, asked, dim], of which `next_action` foretells.
    """

    candidates: Tensor
    requests: Tensor


@dataclass(frozen=True)
class Cache:
    """Keys and values of encoded events, [layers][batch, events, heads, head_dim]."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def events(self) -> int:
        """How many are in it."""
        return int(self.keys[0].shape[1])


class Block(nn.Module):
    """Attention and a feed-forward part, each on the normalised input and added to it."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.heads, self.head_dim = sizes.heads, sizes.head_dim
        self.before_attention = nn.RMSNorm(sizes.dim, eps=1e-6)
        self.query_key_value = nn.Linear(sizes.dim, 3 * sizes.dim, bias=False)
        self.out = nn.Linear(sizes.dim, sizes.dim, bias=False)
        self.before_feed_forward = nn.RMSNorm(sizes.dim, eps=1e-6)
        self.up = nn.Linear(sizes.dim, sizes.feed_forward)
        self.down = nn.Linear(sizes.feed_forward, sizes.dim)
        self.drop = nn.Dropout(dropout)

    def project(self, inner: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values, [batch, tokens, heads, head_dim]."""
        joined = self.query_key_value(self.before_attention(inner))
        query, key, value = joined.view(*inner.shape[:2], 3, self.heads, self.head_dim).unbind(2)
        return rotate(query, cosines, sines), rotate(key, cosines, sines), value

    def finish(self, inner: Tensor, read: Tensor) -> Tensor:
        """The block's output once attention has read something."""
        inner = inner + self.drop(self.out(read.reshape(inner.shape)))
        grown = gelu(self.up(self.before_feed_forward(inner)))
        output: Tensor = inner + self.drop(self.down(grown))
        return output


class SecondNet(nn.Module):
    """Both towers and all heads.

    Args:
        rows: of each table of embeddings: actions, kinds, surfaces, targets, words.
        columns: of the light stage's vectors.
    """

    rates: Tensor
    trust: Tensor

    def __init__(self, sizes: Sizes, rows: Mapping[str, int], columns: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.sizes = sizes
        dim = sizes.dim
        self.actions = nn.Embedding(rows["actions"], dim, padding_idx=0)
        self.kinds = nn.Embedding(rows["kinds"], dim, padding_idx=0)
        self.surfaces = nn.Embedding(rows["surfaces"], dim, padding_idx=0)
        self.targets = nn.Embedding(rows["targets"], dim, padding_idx=0)
        self.words = nn.Embedding(rows["words"], dim, padding_idx=0)
        self.sessions = nn.Linear(sizes.session_bits, dim, bias=False)
        self.gaps = nn.Linear(3, dim)
        self.requests = nn.Linear(dim, dim)
        self.clock = nn.Linear(CLOCK, dim, bias=False)
        self.light = LightReading(columns, dim, dropout)
        self.role = nn.Parameter(torch.zeros(dim))
        self.typed = nn.Parameter(torch.zeros(dim))
        self.blocks = nn.ModuleList(Block(sizes, dropout) for _ in range(sizes.layers))
        self.after = nn.RMSNorm(dim, eps=1e-6)
        self.outcomes = nn.Linear(dim, len(HEADS))
        self.next_bias = nn.Parameter(torch.zeros(rows["actions"]))
        self.next_scale = nn.Parameter(torch.ones(()))
        self.drop = nn.Dropout(dropout)
        self.register_buffer("rates", frequencies(sizes.head_dim), persistent=False)
        self.register_buffer("trust", torch.tensor([UNTRIED, UNTRIED]))  # [typed, PARTS]
        self._start()

    def _start(self) -> None:
        """Small random weights; the outcome heads begin as the light stage's score."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=SPREAD)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)
                if isinstance(module, nn.Embedding):
                    nn.init.zeros_(module.weight[0])
        nn.init.zeros_(self.outcomes.weight)
        self.light.start_opinion()

    @property
    def layers(self) -> tuple[Block, ...]:
        """The blocks in order."""
        return tuple(cast(Iterator[Block], iter(self.blocks)))

    # ---- events

    def embed_events(self, events: EventBatch) -> Tensor:
        """[batch, events, dim]."""
        inner = self.actions(events.action) + self.kinds(events.kind)
        inner = inner + self.surfaces(events.surface) + self.targets(events.target)
        inner = inner + self._bag(events.terms) + self._session(events.session)
        embedded: Tensor = self.drop(inner + self._gap(events.gap_s, events.fresh))
        return embedded

    def encode(self, events: EventBatch, past: Cache | None = None) -> tuple[Cache, Tensor]:
        """Encodes events after those of `past` (which has `events.first` of them).

        Returns:
            The cache of the new events only, and their last hidden state [batch, events, dim], normalised.
        """
        shape = events.action.shape
        index = torch.arange(events.first, events.first + shape[1], device=events.action.device).expand(shape)
        cosines, sines = turns(index, events.seconds, self.rates)
        inner = self.embed_events(events)
        keys, values = [], []
        for number, block in enumerate(self.layers):
            query, key, value = block.project(inner, cosines, sines)
            keys.append(key)
            values.append(value)
            if past is not None and past.events:
                key = torch.cat([past.keys[number], key], dim=1)
                value = torch.cat([past.values[number], value], dim=1)
            inner = block.finish(inner, attend_causal(query, key, value))
        return Cache(tuple(keys), tuple(values)), self.after(inner)

    def next_action(self, hidden: Tensor, among: Tensor | None = None) -> Tensor:
        """Logits [..., actions] of the next action; number 0 is none, and 1 is any that is not known.

        Args:
            among: numbers of actions to score instead of all.
        """
        table: Tensor = self.actions.weight if among is None else self.actions(among)
        bias = self.next_bias if among is None else self.next_bias[among]
        return self.next_scale * (hidden @ table.T) + bias

    # ---- candidates

    def _embed_requests(self, candidates: CandidateBatch) -> Tensor:
        """[requests, dim]."""
        said = self.kinds(candidates.kind) + self.surfaces(candidates.surface) + self._bag(candidates.terms)
        clock = self.clock(candidates.clock.to(self.clock.weight.dtype))
        request: Tensor = self.requests(said) + self._session(candidates.session) + clock
        typed = candidates.typed[:, None].to(self.typed.dtype) * self.typed
        return request + self._gap(candidates.gap_s, candidates.fresh) + self.role + typed

    def _embed_candidates(self, candidates: CandidateBatch, request: Tensor) -> Tensor:
        own = self.actions(candidates.action) + self.targets(candidates.target)
        embedded: Tensor = self.drop(own + request[candidates.request]) + self.light.token(self.known(candidates))
        return embedded

    def hear(self, candidates: CandidateBatch, history: Cache, prefix: bool = False) -> Heard:
        """Candidates, and their requests as if they were candidates of no action, read a history and themselves.

        Args:
            history: the window's cache.
            prefix: whether each sees only the events before its request; else all.
        """
        request = self._embed_requests(candidates)
        asked = self.drop(request[candidates.asked])
        inner = torch.cat([asked, self._embed_candidates(candidates, request)], dim=1)
        index = torch.cat([candidates.asked_index, candidates.index], dim=1)
        seconds = torch.cat([candidates.asked_seconds, candidates.seconds], dim=1)
        cosines, sines = turns(index, seconds, self.rates)
        for block, keys, values in zip(self.layers, history.keys, history.values, strict=True):
            query, key, value = block.project(inner, cosines, sines)
            seen, total = attend_history(query, keys, values, index if prefix else None)
            inner = block.finish(inner, merge_self(seen, total, query, key, value))
        inner = self.after(inner)
        return Heard(inner[:, asked.shape[1] :], inner[:, : asked.shape[1]])

    def score(self, candidates: CandidateBatch, history: Cache, prefix: bool = False) -> Tensor:
        """Logits [batch, candidates, HEADS] of the outcomes; arguments as of `hear`."""
        return self.judge(candidates, self.hear(candidates, history, prefix))

    def judge(self, candidates: CandidateBatch, heard: Heard) -> Tensor:
        """Logits [batch, candidates, HEADS]: what light leads to, a correction, and what is foretold to come next."""
        return self.add(candidates, heard, self.begin(candidates))

    def begin(self, candidates: CandidateBatch) -> Tensor:
        """Logits [batch, candidates, HEADS] of the light stage's score and what is made of its vector."""
        light, opinion, _, _ = self._trusts(candidates)
        scored = light * self.light.gain * candidates.light[..., None]
        return scored + opinion * self.light.opinion(self.known(candidates)) + self.outcomes.bias

    def add(self, candidates: CandidateBatch, heard: Heard, begun: Tensor) -> Tensor:
        """Logits [batch, candidates, HEADS] with what the history adds to those that were begun."""
        _, _, correction, told = self._trusts(candidates)
        foretold = self.foretold(candidates, heard)[..., None]
        return begun + correction * self.corrected(heard) + told * foretold

    def corrected(self, heard: Heard) -> Tensor:
        """What candidates made of the history, as logits [batch, candidates, HEADS] to be added."""
        return heard.candidates @ self.outcomes.weight.T

    def known(self, candidates: CandidateBatch) -> Tensor:
        """What the light stage's vectors say, as `LightReading` reads it."""
        return self.light.known(candidates.features, candidates.light, candidates.typed[candidates.request])

    def _trusts(self, candidates: CandidateBatch) -> tuple[Tensor, ...]:
        """Of each of PARTS, [batch, candidates, 1]."""
        trust: Tensor = self.trust[candidates.typed[candidates.request]]
        return trust[..., None, :].unbind(-1)

    def foretold(self, candidates: CandidateBatch, heard: Heard) -> Tensor:
        """The logit [batch, candidates] of each candidate's action to come next after its request."""
        place = candidates.place[..., None].expand(-1, -1, heard.requests.shape[-1])
        own: Tensor = self.actions(candidates.action)
        told = (heard.requests.gather(1, place) * own).sum(dim=-1)
        return self.next_scale * told + self.next_bias[candidates.action]

    # ---- parts

    def _bag(self, terms: Tensor) -> Tensor:
        """Words of equal weight, the sum as long as one word."""
        found: Tensor = self.words(terms)
        size = (terms > 0).sum(dim=-1, keepdim=True).clamp(min=1)
        return found.sum(dim=-2) * size.to(found.dtype).rsqrt()

    def _session(self, session: Tensor) -> Tensor:
        places = torch.arange(self.sizes.session_bits, device=session.device)
        bits = ((session[..., None] >> places) & 1).to(self.sessions.weight.dtype) * 2 - 1
        named = (session != 0)[..., None].to(bits.dtype)
        code: Tensor = self.sessions(bits * named * self.sizes.session_bits**-0.5)
        return code

    def _gap(self, gap_s: Tensor, fresh: Tensor) -> Tensor:
        grown = torch.log1p(gap_s.float()) / 8.0
        numbers = torch.stack([grown, grown * grown, fresh.float()], dim=-1)
        embedded: Tensor = self.gaps(numbers.to(self.gaps.weight.dtype))
        return embedded
