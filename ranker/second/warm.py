"""What a new version is tried on before anybody may ask it: the longest history, then the usual single event."""

from __future__ import annotations

import numpy as np

from features.registry import COLUMNS
from ranker.second.config import Sizes
from ranker.second.paged import Ask
from ranker.second.tokens import CLOCK, CandidateTokens, RequestToken, event_dtype, pack_events

WARM_USER = "\x00warm"
"""Forgotten as soon as it was served."""


def warm_asks(sizes: Sizes, candidates: int) -> list[Ask]:
    """The largest first."""
    return [_ask(sizes, sizes.window, candidates), _ask(sizes, sizes.window, candidates), _ask(sizes, 1, candidates)]


def _ask(sizes: Sizes, events: int, candidates: int) -> Ask:
    tokens = np.zeros(events, event_dtype(sizes.terms))
    request = RequestToken(0.0, 0.0, 0, 0, 0, 1, np.zeros(CLOCK, np.float32), np.zeros(sizes.terms, np.int32), 1)
    numbers = np.zeros(candidates, np.int32)
    features = np.zeros((candidates, len(COLUMNS)), np.float32)
    asked = CandidateTokens(numbers, numbers, features, np.zeros(candidates, np.float32))
    return Ask(WARM_USER, events, tokens, pack_events(tokens), request, asked, 0.0)
