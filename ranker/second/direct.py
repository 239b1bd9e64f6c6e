"""Scoring without pages: the whole window is encoded for one request. Offline judging uses it; serving must agree."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from features.events import Context
from ranker.inference.page_hash import window_start
from ranker.second.ablation import ablate_candidates, ablate_course, ablate_events, ablate_request
from ranker.second.batches import CandidateBatch, candidate_batch, event_batch
from ranker.second.happenings import Course, Happening
from ranker.second.network import Cache
from ranker.second.tokens import CandidateTokens, EventTokens, RequestToken, encode_events, encode_request
from ranker.second.weights import SecondModel


@dataclass(frozen=True)
class Seen:
    """A history as one request sees it.

    Args:
        start: index of the window's first event among all of the user's.
        tokens: of the window.
        request: the request's own token.
        origin_s: time of the window's first event, or of the request where there is none.
    """

    start: int
    tokens: EventTokens
    request: RequestToken
    origin_s: float


def window_of(course: Course, window: int) -> tuple[int, list[Happening], float | None]:
    """Start, happenings, and the time of the one before, of the window that is encoded."""
    start = window_start(course.total, window)
    return start, *course.window(start)


def see(model: SecondModel, course: Course, now_s: float, user: str, session: str | None, context: Context) -> Seen:
    """What a request at this moment reads."""
    start, happenings, before_s = window_of(ablate_course(course, model.without), model.sizes.window)
    tokens = ablate_events(encode_events(happenings, before_s, model.vocabulary, model.sizes), model.without)
    last = happenings[-1] if happenings else None
    request = encode_request(now_s, user, session, context, last, model.vocabulary, model.sizes)
    request = ablate_request(request, model.without)
    return Seen(start, tokens, request, float(tokens["time_s"][0]) if len(tokens) else request.time_s)


@torch.inference_mode()
def encode_window(model: SecondModel, tokens: EventTokens) -> Cache:
    """Keys and values of a window."""
    return model.net.encode(event_batch([tokens]))[0]


@torch.inference_mode()
def score_cached(
    model: SecondModel, cache: Cache, seen: Seen, candidates: CandidateTokens, micro_batch: int = 256
) -> Tensor:
    """Outcome logits [candidates, HEADS] against a window's keys and values."""
    candidates = ablate_candidates(candidates, model.without)
    parts = [
        model.net.score(_batch(seen, candidates.rows(slice(at, at + micro_batch))), cache)[0]
        for at in range(0, len(candidates), micro_batch)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, len(model.worth))


def _batch(seen: Seen, candidates: CandidateTokens) -> CandidateBatch:
    return candidate_batch([[(seen.request, candidates, len(seen.tokens), seen.origin_s)]])[0]


def score_direct(model: SecondModel, seen: Seen, candidates: CandidateTokens) -> Tensor:
    """Outcome logits [candidates, HEADS], everything computed anew."""
    return score_cached(model, encode_window(model, seen.tokens), seen, candidates)
