"""Tokens without a part of what is known, to see what it is worth: a model made so is judged and never serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from features.definitions.text import TextScore
from features.registry import COLUMNS
from ranker.second.happenings import FEEDBACK_KINDS, Course, Happening
from ranker.second.tokens import CandidateTokens, EventTokens, RequestToken
from ranker.second.vocabulary import NOTHING

PARTS = ("text", "time", "feedback")

_TEXT_COLUMNS = [COLUMNS.index(column) for column in TextScore.columns]


def ablate_course(course: Course, without: frozenset[str]) -> Course:
    """The course that is encoded; whole courses only."""
    if "feedback" not in without:
        return course
    kept = ablate_history(course.kept, without)
    return Course(len(kept), kept)


def ablate_history(history: Sequence[Happening], without: frozenset[str]) -> list[Happening]:
    """Happenings but for those that came of what was offered."""
    return [each for each in history if "feedback" not in without or each.kind not in FEEDBACK_KINDS]


def ablate_events(tokens: EventTokens, without: frozenset[str]) -> EventTokens:
    """Events without words, or all at one time."""
    if not without & {"text", "time"}:
        return tokens
    tokens = tokens.copy()
    if "text" in without:
        tokens["terms"] = NOTHING
    if "time" in without:
        tokens["time_s"], tokens["gap_s"] = 0.0, 0.0
    return tokens


def ablate_request(request: RequestToken, without: frozenset[str]) -> RequestToken:
    """The same of a request."""
    if "text" in without:
        request = replace(request, terms=np.zeros_like(request.terms), typed=0)
    if "time" in without:
        request = replace(request, time_s=0.0, gap_s=0.0, clock=np.zeros_like(request.clock))
    return request


def ablate_candidates(candidates: CandidateTokens, without: frozenset[str]) -> CandidateTokens:
    """Without the light stage's text columns; its score, which used them, stays."""
    if "text" not in without:
        return candidates
    features = candidates.features.copy()
    features[:, _TEXT_COLUMNS] = np.nan
    return replace(candidates, features=features)
