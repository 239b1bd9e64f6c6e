"""Tokens of histories and requests as tensors, several at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ranker.second.tokens import CandidateTokens, EventTokens, RequestToken


@dataclass(frozen=True)
class EventBatch:
    """Events of histories, padded at their ends; padding changes nothing before it.

    Args:
        action, kind, surface, target: numbers [batch, events].
        terms: [batch, events, terms].
        session: [batch, events] 32 bits, in int64.
        fresh: [batch, events].
        gap_s: float32 [batch, events].
        seconds: float64 [batch, events] since the window's first event.
        first: index within the window of the first event here: those before it are in the cache.
    """

    action: Tensor
    kind: Tensor
    surface: Tensor
    target: Tensor
    terms: Tensor
    session: Tensor
    fresh: Tensor
    gap_s: Tensor
    seconds: Tensor
    first: int = 0


@dataclass(frozen=True)
class CandidateBatch:
    """Candidates, each with what its request says.

    Args:
        action, target: numbers [batch, candidates].
        features: [batch, candidates, columns]; may have NaN.
        light: [batch, candidates].
        request: [batch, candidates] row of the request in what follows.
        index: [batch, candidates] events of the window before the request.
        seconds: float64 [batch, candidates] from the window's first event to the request.
        place: [batch, candidates] column of the request in `asked`.
        asked: [batch, asked] rows of the requests that a history answers.
        asked_index, asked_seconds: [batch, asked] as `index` and `seconds`.
        kind, surface, session, fresh, gap_s, typed: [requests].
        clock: [requests, CLOCK].
        terms: [requests, terms].
    """

    action: Tensor
    target: Tensor
    features: Tensor
    light: Tensor
    request: Tensor
    index: Tensor
    seconds: Tensor
    place: Tensor
    asked: Tensor
    asked_index: Tensor
    asked_seconds: Tensor
    kind: Tensor
    surface: Tensor
    session: Tensor
    fresh: Tensor
    gap_s: Tensor
    clock: Tensor
    terms: Tensor
    typed: Tensor


def event_batch(
    histories: Sequence[EventTokens], first: int = 0, origin_s: Sequence[float] | None = None
) -> EventBatch:
    """Histories as one batch, padded at their ends to the longest.

    Args:
        first: index within the window of each history's first event here.
        origin_s: time of each window's first event; default: of each history's first event here.
    """
    longest = max((len(tokens) for tokens in histories), default=0)
    dtype = histories[0].dtype
    joined = np.zeros((len(histories), longest), dtype)
    for row, tokens in enumerate(histories):
        joined[row, : len(tokens)] = tokens
        joined["time_s"][row, len(tokens) :] = tokens["time_s"][-1] if len(tokens) else 0.0
    if origin_s is None:
        origin_s = [float(tokens["time_s"][0]) if len(tokens) else 0.0 for tokens in histories]
    seconds = joined["time_s"] - np.asarray(origin_s, np.float64)[:, None]
    return EventBatch(
        action=_whole(joined["action"]), kind=_whole(joined["kind"]), surface=_whole(joined["surface"]),
        target=_whole(joined["target"]), terms=_whole(joined["terms"]), session=_whole(joined["session"]),
        fresh=_whole(joined["fresh"]), gap_s=torch.from_numpy(np.ascontiguousarray(joined["gap_s"])),
        seconds=torch.from_numpy(np.maximum(seconds, 0.0)), first=first,
    )  # fmt: skip


def candidate_batch(
    rows: Sequence[Sequence[tuple[RequestToken, CandidateTokens, int, float]]],
) -> tuple[CandidateBatch, Tensor]:
    """Candidates of requests, several requests a history.

    Args:
        rows: per history its requests: (request, candidates, events of the window before it, time of the window's
            first event; that of the request itself where there is none).

    Returns:
        The batch, and which places of it [batch, candidates] hold a candidate: the rest is padding.
    """
    requests = [request for row in rows for request, *_ in row]
    counts = [[len(candidates) for _, candidates, *_ in row] for row in rows]
    widest = max(map(sum, counts), default=0)
    shape = (len(rows), widest)
    held = [(row, request, candidates, index, origin_s) for row, each in enumerate(rows)
            for request, candidates, index, origin_s in each]  # fmt: skip
    columns = held[0][2].features.shape[1]
    action, target, number, index_of, place_of = (np.zeros(shape, np.int64) for _ in range(5))
    features, light = np.zeros((*shape, columns), np.float32), np.zeros(shape, np.float32)
    seconds, real = np.zeros(shape, np.float64), np.zeros(shape, np.bool_)
    filled, first = [0] * len(rows), np.cumsum([0, *map(len, rows)])
    for place, (row, request, candidates, index, origin_s) in enumerate(held):
        here = slice(filled[row], filled[row] + len(candidates))
        filled[row] = here.stop
        action[row, here], target[row, here] = candidates.actions, candidates.targets
        features[row, here], light[row, here] = candidates.features, candidates.light
        number[row, here], index_of[row, here], real[row, here] = place, index, True
        place_of[row, here] = place - first[row]
        seconds[row, here] = max(request.time_s - origin_s, 0.0)
    batch = CandidateBatch(
        action=torch.from_numpy(action), target=torch.from_numpy(target), features=torch.from_numpy(features),
        light=torch.from_numpy(light), request=torch.from_numpy(number), index=torch.from_numpy(index_of),
        seconds=torch.from_numpy(seconds), place=torch.from_numpy(place_of), **_asked(rows), **_requests(requests),
    )  # fmt: skip
    return batch, torch.from_numpy(real)


def _asked(rows: Sequence[Sequence[tuple[RequestToken, CandidateTokens, int, float]]]) -> dict[str, Tensor]:
    """The requests of each history, padded with the first of all."""
    shape = (len(rows), max(map(len, rows), default=0))
    asked, index_of, seconds = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.float64)
    number = 0
    for row, each in enumerate(rows):
        for place, (request, _, index, origin_s) in enumerate(each):
            asked[row, place], index_of[row, place] = number, index
            seconds[row, place] = max(request.time_s - origin_s, 0.0)
            number += 1
    return {
        "asked": torch.from_numpy(asked), "asked_index": torch.from_numpy(index_of),
        "asked_seconds": torch.from_numpy(seconds),
    }  # fmt: skip


def _requests(requests: Sequence[RequestToken]) -> dict[str, Tensor]:
    return {
        "kind": torch.tensor([request.kind for request in requests]),
        "surface": torch.tensor([request.surface for request in requests]),
        "session": torch.tensor([request.session for request in requests]),
        "fresh": torch.tensor([request.fresh for request in requests]),
        "gap_s": torch.tensor([request.gap_s for request in requests], dtype=torch.float32),
        "clock": torch.from_numpy(np.stack([request.clock for request in requests])),
        "terms": _whole(np.stack([request.terms for request in requests])),
        "typed": torch.tensor([request.typed for request in requests]),
    }


def moved(batch: Any, device: torch.device | str) -> Any:
    """A batch's tensors on a device."""
    return replace(
        batch, **{name: value.to(device) for name, value in vars(batch).items() if isinstance(value, Tensor)}
    )


def _whole(numbers: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers).astype(np.int64))
