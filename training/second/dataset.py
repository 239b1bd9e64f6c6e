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


def _cut(
    history: list[Happening], asked: list[Asked], gathered: Gathered, plain: Scores, hint: Scores, encoding: Encoding
) -> Iterator[Window]:
    tokens = encode_events(history, None, encoding.vocabulary, encoding.sizes)
    following = next_actions(history, tokens)
    longest = encoding.sizes.window
    by_start: dict[int, list[Asked]] = defaultdict(list)
    for each in asked:
        by_start[window_start(each.seen, longest)].append(each)
    starts = {window_start(count, longest) for count in range(1, len(history) + 1)} | by_start.keys()
    for start in sorted(starts):
        end = min(len(history), start + longest)
        questions = tuple(
            _question(each, start, gathered, plain, hint, encoding) for each in by_start.get(start, ())
        )  # fmt: skip
        part = tokens[start:end].copy()
        part["fresh"][:1] = 1
        fits = np.array([window_start(place + 1, longest) == start for place in range(start, end)], np.bool_)
        times = [history[end - 1].time_s if end > start else 0.0, *(each.now_s for each in by_start.get(start, ()))]
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
    asked: Asked, start: int, gathered: Gathered, plain: Scores, hint: Scores, encoding: Encoding
) -> Question:
    examples = gathered.examples
    assert examples is not None, "gather_second sets it"
    forms: list[Form | None] = []
    for row, vectors, scores, text in (
        (asked.row, examples.vectors, plain, None),
        (asked.hint_row, examples.hint_vectors, hint, asked.hint),
    ):
        if row < 0 or row >= len(scores):
            forms.append(None)
            continue
        context = asked.context if text is None else msgspec.structs.replace(asked.context, text=text)
        features = vectors.features[row]
        forms.append(
            Form(
                _request(asked, context, encoding),
                encode_candidates(asked.actions, asked.targets, features, scores[row], encoding.vocabulary),
            )
        )
    assert forms[0] is not None, "every request has plain vectors"
    return Question(
        asked.now_s, asked.seen - start, forms[0], forms[1], asked.outcomes, asked.offered, asked.gains
    )  # fmt: skip


def _request(asked: Asked, context: Context, encoding: Encoding) -> RequestToken:
    last = asked.history[asked.seen - 1] if asked.seen else None
    return encode_request(
        asked.now_s, asked.user, asked.session, context, last, encoding.vocabulary, encoding.sizes
    )  # fmt: skip
