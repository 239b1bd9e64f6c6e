"""From happenings and requests to the integers and numbers that the model reads.

An event's token says nothing about the request that reads it, so what was computed from it can be kept; and its bytes
say all that the model reads of it, so that they can name a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from math import cos, pi, sin
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.events import Context
from features.registry import COLUMNS
from ranker.second.config import Sizes
from ranker.second.happenings import Happening, context_terms, kind_of, session_hash, target_type, terms_of
from ranker.second.vocabulary import Vocabulary

TOKENS_VERSION = 2
"""Raise it when the same happening comes to be another token."""

DAY_S = 86400.0
CLOCK = 4
"""Numbers that say the time of day and of the week."""


@cache
def event_dtype(terms: int) -> np.dtype[np.void]:
    """The layout of an event's token."""
    return np.dtype(
        [
            ("time_s", "<f8"), ("gap_s", "<f4"), ("action", "<i4"), ("kind", "<i4"), ("surface", "<i4"),
            ("target", "<i4"), ("session", "<u4"), ("fresh", "<i4"), ("terms", "<i4", (terms,)),
        ]
    )  # fmt: skip


EventTokens = NDArray[np.void]
"""[events] of `event_dtype`: time, seconds since the event before, numbers, whether its session is another than that of
the event before, and numbers of terms."""


def encode_events(
    happenings: Sequence[Happening], before: Happening | float | None, vocabulary: Vocabulary, sizes: Sizes
) -> EventTokens:
    """Tokens of a stretch of a course.

    Args:
        before: the happening before the first (or its time only, at a window's start), None where there is none.
    """
    tokens = np.zeros(len(happenings), event_dtype(sizes.terms))
    tokens["action"] = vocabulary.actions.all([each.action for each in happenings])
    tokens["kind"] = vocabulary.kinds.all([each.kind for each in happenings])
    tokens["surface"] = vocabulary.surfaces.all([each.surface for each in happenings])
    tokens["target"] = vocabulary.targets.all([each.target for each in happenings])
    tokens["session"] = [each.session for each in happenings]
    tokens["time_s"] = [each.time_s for each in happenings]
    for row, each in enumerate(happenings):
        tokens["terms"][row] = vocabulary.words(terms_of(each), sizes.terms)
    _relate(tokens, before)
    return tokens


def _relate(tokens: EventTokens, before: Happening | float | None) -> None:
    if not len(tokens):
        return
    known = isinstance(before, Happening)
    first_s = tokens["time_s"][0] if before is None else before.time_s if isinstance(before, Happening) else before
    session = before.session if isinstance(before, Happening) else -1
    tokens["gap_s"] = np.maximum(np.diff(tokens["time_s"], prepend=first_s), 0.0)
    sessions = tokens["session"].astype(np.int64)
    tokens["fresh"] = np.diff(sessions, prepend=session if known else sessions[0] - 1) != 0


def pack_events(tokens: EventTokens) -> list[bytes]:
    """One event's bytes each: all that the model reads of it."""
    size = tokens.dtype.itemsize
    packed = tokens.tobytes()
    return [packed[at : at + size] for at in range(0, len(packed), size)]


def unpack_events(packed: Sequence[bytes], sizes: Sizes) -> EventTokens:
    """What `pack_events` packed."""
    return np.frombuffer(b"".join(packed), event_dtype(sizes.terms))


@dataclass(frozen=True)
class RequestToken:
    """The request's own context, which all its candidates share.

    Args:
        gap_s: since the last event of the history, 0 without one.
        fresh: whether nothing of its session is the last of the history.
        clock: [CLOCK] sine and cosine of the time of day and of the week, UTC.
        terms: [terms] numbers of fields and of what is being typed.
        typed: whether anything is.
    """

    time_s: float
    gap_s: float
    kind: int
    surface: int
    session: int
    fresh: int
    clock: NDArray[np.float32]
    terms: NDArray[np.int32]
    typed: int


def encode_request(
    now_s: float,
    user: str,
    session: str | None,
    context: Context,
    last: Happening | None,
    vocabulary: Vocabulary,
    sizes: Sizes,
) -> RequestToken:
    """The token of a request.

    Args:
        last: the last happening of the history.
    """
    named = session_hash(user, session)
    return RequestToken(
        time_s=now_s,
        gap_s=max(now_s - last.time_s, 0.0) if last is not None else 0.0,
        kind=vocabulary.kinds.of(kind_of(context.trigger.type) if context.trigger else None),
        surface=vocabulary.surfaces.of(context.surface),
        session=named,
        fresh=int(last is None or last.session != named),
        clock=_clock(now_s),
        terms=vocabulary.words(context_terms(context.fields, context.text), sizes.terms),
        typed=int(bool(context.text)),
    )


def _clock(now_s: float) -> NDArray[np.float32]:
    moment = datetime.fromtimestamp(now_s, UTC)
    day = 2 * pi * (now_s % DAY_S) / DAY_S
    week = 2 * pi * moment.weekday() / 7
    return np.array([sin(day), cos(day), sin(week), cos(week)], np.float32)


@dataclass(frozen=True)
class CandidateTokens:
    """Candidates of one request.

    Args:
        actions, targets: numbers [candidates].
        features: the light stage's vectors [candidates, columns]; NaN where something is not known.
        light: the light stage's scores [candidates].
    """

    actions: NDArray[np.int32]
    targets: NDArray[np.int32]
    features: NDArray[np.float32]
    light: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.actions)

    def rows(self, chosen: Any) -> CandidateTokens:
        """Some of them."""
        return CandidateTokens(self.actions[chosen], self.targets[chosen], self.features[chosen], self.light[chosen])


def encode_candidates(
    actions: Sequence[str],
    targets: Sequence[str | None],
    features: NDArray[np.float32],
    light: NDArray[np.floating[Any]],
    vocabulary: Vocabulary,
) -> CandidateTokens:
    """Tokens of a request's candidates.

    Args:
        features: [candidates, columns] as the light stage read them.
        light: [candidates] its scores.
    """
    if features.shape != (len(actions), len(COLUMNS)) or light.shape != (len(actions),):
        raise ValueError(f"features {features.shape} and scores {light.shape} for {len(actions)} candidates")
    return CandidateTokens(
        vocabulary.actions.all(actions),
        vocabulary.targets.all([target_type(target) for target in targets]),
        np.asarray(features, np.float32),
        np.asarray(light, np.float32),
    )
