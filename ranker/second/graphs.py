"""Scoring on CUDA in static shapes: one captured graph for each bucket of events and candidates.

Launching a layer's kernels one by one costs more than running them. A graph launches all at once, but only with the
shapes and the memory that it was captured with: so a request is padded up to a bucket, its numbers are copied into the
bucket's own tensors, and what was computed for the padding is dropped. Not measured: no GPU was at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from ranker.second.batches import CandidateBatch
from ranker.second.network import Cache, SecondNet

SMALLEST_CANDIDATES = 16
WARM_RUNS = 3
OF_CANDIDATES = ("action", "target", "features", "light", "request", "index", "seconds", "place")
"""Fields of `CandidateBatch` with a row per candidate; the others are of the request."""


class Capturer(Protocol):
    """Records what a job launches."""

    def capture(self, job: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
        """What does it again, and where its result then lies: in the same memory each time."""
        ...


class CudaCapturer:
    """Graphs of this thread's device."""

    def capture(self, job: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
        """Warm-up on a side stream, as capture wants it, then the graph."""
        cuda: Any = torch.cuda
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            for _ in range(WARM_RUNS):
                job()
        cuda.current_stream().wait_stream(stream)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            found = job()
        return graph.replay, found


def buckets(smallest: int, largest: int) -> tuple[int, ...]:
    """Doubling sizes up to the largest, which is one of them."""
    found = []
    while smallest < largest:
        found.append(smallest)
        smallest *= 2
    return (*found, largest)


def bucket_of(count: int, among: Sequence[int]) -> int:
    """The least that holds so many; the largest one must."""
    return next(size for size in among if size >= count)


@dataclass(frozen=True)
class _Captured:
    """A bucket: tensors to fill, what runs it, and where the result lies."""

    batch: CandidateBatch
    seen: Tensor
    replay: Callable[[], object]
    found: Tensor


class GraphedScores:
    """Logits of one request's candidates against a history that lies in buffers.

    Args:
        keys, values: float32 [layers, columns, dim], the same memory for as long as this lives.
        page_tokens: the smallest bucket of events.
        micro_batch: the largest of candidates.
    """

    def __init__(
        self, net: SecondNet, keys: Tensor, values: Tensor, capturer: Capturer, page_tokens: int, micro_batch: int
    ) -> None:
        self._net, self._keys, self._values, self._capturer = net, keys, values, capturer
        self._events = buckets(page_tokens, keys.shape[1])
        self._candidates = buckets(SMALLEST_CANDIDATES, micro_batch)
        self._captured: dict[tuple[int, int], _Captured] = {}

    def __len__(self) -> int:
        return len(self._captured)

    def warm(self, batch: CandidateBatch) -> None:
        """Captures every bucket, the largest first, before memory is measured; `batch` is any request's."""
        for events in reversed(self._events):
            for candidates in reversed(self._candidates):
                self._bucket(batch, events, candidates)

    def score(self, batch: CandidateBatch, events: int) -> Tensor:
        """Logits [candidates, HEADS], in memory of their own.

        Args:
            batch: of one request, at most `micro_batch` candidates; on any device.
            events: that are in the buffers; what lies behind them is overwritten with zeros.
        """
        count = batch.action.shape[1]
        size = bucket_of(max(events, 1), self._events)
        captured = self._bucket(batch, size, bucket_of(count, self._candidates))
        for each in (self._keys, self._values):  # what is hidden is multiplied all the same
            each[:, events:size].zero_()
        captured.seen.fill_(events)
        for field in fields(CandidateBatch):
            static, given = getattr(captured.batch, field.name), getattr(batch, field.name)
            if field.name in OF_CANDIDATES:
                static[:, :count].copy_(given)
                static[:, count:].zero_()
            else:
                static.copy_(given)
        captured.replay()
        return captured.found[:count].clone()

    def _bucket(self, like: CandidateBatch, events: int, candidates: int) -> _Captured:
        found = self._captured.get((events, candidates))
        if found is None:
            found = self._captured[events, candidates] = self._capture(like, events, candidates)
        return found

    def _capture(self, like: CandidateBatch, events: int, candidates: int) -> _Captured:
        device = self._keys.device
        batch = replace(like, **{field.name: self._static(like, field.name, candidates) for field in fields(like)})
        seen = torch.zeros((), dtype=torch.int64, device=device)

        def job() -> Tensor:
            return self._net.score(_seeing(batch, seen), self._history(events), prefix=True)[0]

        return _Captured(batch, seen, *self._capturer.capture(job))

    def _history(self, events: int) -> Cache:
        sizes, kind = self._net.sizes, self._net.role.dtype
        keys, values = (
            each[:, None, :events].view(sizes.layers, 1, events, sizes.heads, sizes.head_dim).to(kind).unbind(0)
            for each in (self._keys, self._values)
        )
        return Cache(keys, values)

    def _static(self, like: CandidateBatch, name: str, candidates: int) -> Tensor:
        given: Tensor = getattr(like, name)
        shape = (1, candidates, *given.shape[2:]) if name in OF_CANDIDATES else tuple(given.shape)
        return torch.zeros(shape, dtype=given.dtype, device=self._keys.device)


def _seeing(batch: CandidateBatch, seen: Tensor) -> CandidateBatch:
    """All rows see as many events, those of the padding too."""
    return replace(
        batch,
        index=torch.zeros_like(batch.index) + seen,
        asked_index=torch.zeros_like(batch.asked_index) + seen,
    )
