"""Embeds new events and candidates for serving: one bag of all tables' rows, and small matrices for the numbers.

The same sums as `SecondNet` for events, requests and candidates, in float32, with a tenth of the calls.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ranker.second.folded import Folded, Trust
from ranker.second.light_reading import CLAMP
from ranker.second.network import SecondNet
from ranker.second.tokens import CandidateTokens, EventTokens, RequestToken

TABLES = ("actions", "kinds", "surfaces", "targets", "words")

Numbers = NDArray[np.float32]


class Embedding:
    """The tables of a network as one; the network's own become parts of it.

    Args:
        net: with parameters in one format.
        folded: of the same network.
    """

    def __init__(self, net: SecondNet, folded: Folded) -> None:
        tables = [getattr(net, name) for name in TABLES]
        self._table = torch.cat([table.weight.detach() for table in tables])
        starts = np.cumsum([0, *(table.num_embeddings for table in tables)])
        for table, start, end in zip(tables, starts[:-1], starts[1:], strict=True):
            table.weight.data = self._table[start:end]
        self._folded = folded
        self._action, self._kind, self._surface, self._target, self._word = map(int, starts[:-1])
        self._places = np.arange(net.sizes.session_bits)
        self._mean, self._spread = net.light.mean.float().numpy(), net.light.spread.float().numpy()

    def events(self, tokens: EventTokens, out: Tensor) -> None:
        """Fills [events, dim]."""
        numbers = np.empty((len(tokens), 4 + tokens["terms"].shape[1]), np.int64)
        numbers[:, 0] = tokens["action"] + self._action
        numbers[:, 1] = tokens["kind"] + self._kind
        numbers[:, 2] = tokens["surface"] + self._surface
        numbers[:, 3] = tokens["target"] + self._target
        shares = np.ones(numbers.shape, np.float32)
        self._words(tokens["terms"], numbers[:, 4:], shares[:, 4:])
        said = self._said(tokens["session"], tokens["gap_s"], tokens["fresh"], 0)
        torch.addmm(self._bags(numbers, shares), torch.from_numpy(said), self._folded.happened, out=out)

    def light(self, candidates: CandidateTokens, typed: int) -> Tensor:
        """[candidates, dim + HIDDEN] what `candidates` and `begun` make more of, from the light stage's vectors."""
        known = torch.from_numpy(self._known(candidates, typed))
        read = torch.addmm(self._folded.light_in_bias, known, self._folded.light_in)
        torch.ops.aten.gelu_(read)
        return read

    def candidates(self, request: RequestToken, candidates: CandidateTokens, light: Tensor, out: Tensor) -> None:
        """Fills [1 + candidates, dim]; the first is the request itself."""
        out[:] = self._request(request)
        own = np.empty((len(candidates), 2), np.int64)
        np.add(candidates.actions, self._action, out=own[:, 0])
        np.add(candidates.targets, self._target, out=own[:, 1])
        part = light[:, : out.shape[1]]
        out[1:].addmm_(part, self._folded.light_out).add_(self._bags(own)).add_(self._folded.light_out_bias)

    def begun(self, candidates: CandidateTokens, light: Tensor, trust: Trust) -> Tensor:
        """Logits [candidates, HEADS] of the light stage's score and of what is made of its vector."""
        known = self._folded
        inner = torch.addmm(known.opinion_within_bias, light[:, len(known.light_out) :], known.opinion_within)
        found = torch.addmm(known.judge_bias, torch.ops.aten.gelu_(inner), known.opinion_out, alpha=trust.opinion)
        return found.addcmul_(torch.from_numpy(candidates.light)[:, None], known.light_gain, value=trust.light)

    def foretold(self, request: Tensor, candidates: CandidateTokens) -> Tensor:
        """Logits [candidates] of the actions to come next.

        Args:
            request: [dim] what it made of the history.
        """
        numbers = torch.from_numpy(candidates.actions.astype(np.int64))
        own = self._table.index_select(0, numbers + self._action).float()
        return torch.addmv(self._folded.told_bias.index_select(0, numbers), own, request * self._folded.told)

    def _request(self, request: RequestToken) -> Tensor:
        """What all candidates share, [1, dim]."""
        numbers = np.empty((1, 2 + len(request.terms)), np.int64)
        numbers[0, :2] = request.kind + self._kind, request.surface + self._surface
        shares = np.ones(numbers.shape, np.float32)
        self._words(request.terms[None], numbers[:, 2:], shares[:, 2:])
        session, gap_s, fresh = (
            np.array([value]) for value in (request.session, np.float32(request.gap_s), request.fresh)
        )
        said = self._said(session, gap_s, fresh, 1 + len(request.clock))
        said[0, -len(request.clock) - 1], said[0, -len(request.clock) :] = request.typed, request.clock
        asked = torch.mm(torch.from_numpy(said), self._folded.asked)
        return asked.addmm_(self._bags(numbers, shares), self._folded.spoken)

    def _bags(self, numbers: NDArray[np.int64], shares: Numbers | None = None) -> Tensor:
        """Weighted sums of rows of the table, float32 [bags, dim]."""
        flat = torch.from_numpy(numbers.reshape(-1))
        each = torch.from_numpy(np.arange(0, numbers.size, numbers.shape[1]))
        weights = None if shares is None else torch.from_numpy(shares.reshape(-1)).to(self._table.dtype)
        found: Tensor = torch.embedding_bag(self._table, flat, each, False, 0, False, weights)[0]
        return found.float()

    def _words(self, terms: NDArray[np.int32], numbers: NDArray[np.int64], shares: Numbers) -> None:
        """Words of equal weight, the sum as long as one word."""
        np.add(terms, self._word, out=numbers)
        shares[:] = np.maximum((terms > 0).sum(axis=1, keepdims=True), 1) ** -0.5

    def _said(self, session: NDArray[np.integer], gap_s: Numbers, fresh: NDArray[np.integer], more: int) -> Numbers:
        """Session's code, time since the event before, one, and room for more numbers."""
        bits = len(self._places)
        said = np.empty((len(session), bits + 4 + more), np.float32)
        code = ((session.astype(np.int64)[:, None] >> self._places) & 1) * 2 - 1
        np.multiply(code, (session != 0)[:, None], out=said[:, :bits])
        grown = np.log1p(gap_s) / np.float32(8.0)
        said[:, bits], said[:, bits + 1], said[:, bits + 2], said[:, bits + 3] = grown, grown * grown, fresh, 1.0
        return said

    def _known(self, candidates: CandidateTokens, typed: int) -> Numbers:
        """`LightReading.known`."""
        rows, columns = candidates.features.shape
        known = np.empty((rows, 2 * columns + 2), np.float32)
        scaled = known[:, : columns + 1]
        scaled[:, :columns], scaled[:, columns] = candidates.features, candidates.light
        missing = np.isnan(scaled)
        known[:, columns + 1 : -1], known[:, -1] = missing[:, :columns], typed
        grown = np.log1p(np.abs(scaled))
        np.copysign(grown, scaled, out=grown)
        grown -= self._mean
        grown /= self._spread
        np.clip(grown, -CLAMP, CLAMP, out=scaled)
        scaled[missing] = 0.0
        return known
