"""Histories cut into windows as serving would cut them, with the requests that fall into each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from features.events import Context
from features.tokens import Terms
from ranker.inference.page_hash import window_start
from ranker.second.ablation import ablate_candidates, ablate_events, ablate_history, ablate_request
from ranker.second.config import Sizes, TrainSecond
from ranker.second.happenings import OFFERED, Happening, context_terms, kind_of
from ranker.second.tokens import (
    CandidateTokens,
    EventTokens,
    RequestToken,
    encode_candidates,
    encode_events,
    encode_request,
)
from ranker.second.vocabulary import FIRST, Known, Vocabulary, learn_vocabulary
from training.second.gather import Asked, Gathered
from training.second.out_of_fold import Scores


@dataclass(frozen=True)
class Form:
    """A request and its candidates, with or without what was typed."""

    request: RequestToken
    candidates: CandidateTokens


@dataclass(frozen=True)
class Question:
    """A request to learn from.

    Args:
        index: events of its window before it.
        plain, hint: its forms; the second where the log has what was typed.
        outcomes: bool [candidates, HEADS].
        offered: bool [candidates].
        gains: [candidates].
    """

    now_s: float
    index: int
    plain: Form
    hint: Form | None
    outcomes: NDArray[np.bool_]
    offered: NDArray[np.bool_]
    gains: NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """A stretch of a history that is encoded at once.

    Args:
        next_action: [events] number of the action that comes next in the same session; 0 where that says nothing.
        last_s: when the last of it happened: batches go in this order.
    """

    tokens: EventTokens
    next_action: NDArray[np.int32]
    questions: tuple[Question, ...]
    last_s: float


def vocabulary_of(gathered: Gathered, settings: TrainSecond) -> Known:
    """What happened often enough in the courses and requests to be known."""
    return learn_vocabulary(
        (each for history in gathered.sequences() for each in history), gathered.actions,
        settings.min_count, settings.max_actions, settings.max_words, _contexts(gathered.asked),
    )  # fmt: skip


def _contexts(asked: Sequence[Asked]) -> Iterator[tuple[str | None, str | None, Terms]]:
    for each in asked:
        context = each.context
        trigger = kind_of(context.trigger.type) if context.trigger else None
        text = each.hint if each.hint is not None else context.text
        yield context.surface, trigger, context_terms(context.fields, text)


@dataclass(frozen=True)
class Encoding:
    """How everything becomes numbers.

    Args:
        without: parts of what is known to leave out: `text`, `time` or `feedback`.
    """

    vocabulary: Vocabulary
    sizes: Sizes
    without: frozenset[str] = frozenset()


def make_windows(gathered: Gathered, plain: Scores, hint: Scores, encoding: Encoding) -> list[Window]:
    """All windows in order of time.

    Args:
        plain, hint: light scores per row of the vectors, out of fold.
    """
    by_history: dict[int, list[Asked]] = defaultdict(list)
    for asked in gathered.asked:
        by_history[id(asked.history)].append(asked)
    windows: list[Window] = []
    for history in gathered.sequences():
        windows += _cut(history, by_history.get(id(history), []), gathered, plain, hint, encoding)
    return sorted(windows, key=lambda window: window.last_s)


@dataclass(frozen=True)
class _Told:
    """A history as it is encoded.

    Args:
        seen: [happenings + 1] of the first so many, how many are encoded.
    """

    kept: list[Happening]
    seen: NDArray[np.int64]


def _told(history: list[Happening], without: frozenset[str]) -> _Told:
    kept = ablate_history(history, without)
    if len(kept) == len(history):
        return _Told(kept, np.arange(len(history) + 1))
    counts = np.array([0, *(bool(ablate_history([each], without)) for each in history)], np.int64)
    return _Told(kept, np.cumsum(counts))


def _cut(
    history: list[Happening], asked: list[Asked], gathered: Gathered, plain: Scores, hint: Scores, encoding: Encoding
) -> Iterator[Window]:
    told = _told(history, encoding.without)
    tokens = encode_events(told.kept, None, encoding.vocabulary, encoding.sizes)
    following = next_actions(told.kept, tokens)
    tokens = ablate_events(tokens, encoding.without)
    longest = encoding.sizes.window
    by_start: dict[int, list[Asked]] = defaultdict(list)
    for each in asked:
        by_start[window_start(int(told.seen[each.seen]), longest)].append(each)
    starts = {window_start(count, longest) for count in range(1, len(told.kept) + 1)} | by_start.keys()
    for start in sorted(starts):
        end = min(len(told.kept), start + longest)
        here = by_start.get(start, [])
        questions = tuple(_question(each, told, start, gathered, plain, hint, encoding) for each in here)
        part = tokens[start:end].copy()
        part["fresh"][:1] = 1
        fits = np.array([window_start(place + 1, longest) == start for place in range(start, end)], np.bool_)
        times = [told.kept[end - 1].time_s if end > start else 0.0, *(each.now_s for each in here)]
        yield Window(part, np.where(fits, following[start:end], 0), questions, max(times))


def next_actions(history: Sequence[Happening], tokens: EventTokens) -> NDArray[np.int32]:
    """[events] the known action that the same session does next; nothing is asked after an offer, which names it."""
    found = np.zeros(len(history), np.int32)
    coming: dict[int, int] = {}
    for place in range(len(history) - 1, -1, -1):
        each = history[place]
        if each.kind != OFFERED:
            found[place] = coming.get(each.session, 0)
            number = int(tokens["action"][place])
            if number >= FIRST and (each.kind == "accepted" or each.kind.startswith("i:")):
                coming[each.session] = number
    return found


def _question(
    asked: Asked, told: _Told, start: int, gathered: Gathered, plain: Scores, hint: Scores, encoding: Encoding
) -> Question:
    examples = gathered.examples
    assert examples is not None, "gather_second sets it"
    seen = int(told.seen[asked.seen])
    last = told.kept[seen - 1] if seen else None
    first = _form(asked, asked.context, last, examples.vectors.features[asked.row], plain[asked.row], encoding)
    second = None
    if 0 <= asked.hint_row < len(hint):
        context = msgspec.structs.replace(asked.context, text=asked.hint)
        features = examples.hint_vectors.features[asked.hint_row]
        second = _form(asked, context, last, features, hint[asked.hint_row], encoding)
    return Question(asked.now_s, seen - start, first, second, asked.outcomes, asked.offered, asked.gains)


def _form(
    asked: Asked, context: Context, last: Happening | None, features: NDArray[np.float32],
    light: NDArray[np.float32], encoding: Encoding,
) -> Form:  # fmt: skip
    vocabulary, without = encoding.vocabulary, encoding.without
    request = encode_request(
        asked.now_s, asked.user, asked.session, context, last, vocabulary, encoding.sizes
    )  # fmt: skip
    candidates = encode_candidates(asked.actions, asked.targets, features, light, vocabulary)
    return Form(ablate_request(request, without), ablate_candidates(candidates, without))
