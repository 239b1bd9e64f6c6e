"""Which windows are learned from together, and which candidates of each request: all from the seed and the place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ranker.second.config import TrainSecond
from ranker.second.tokens import EventTokens
from ranker.second.vocabulary import NOTHING, UNKNOWN
from training.second.dataset import Form, Question, Window

BLOCK = 64
"""Windows that follow one another in time and may be put together by length."""


@dataclass(frozen=True)
class Part:
    """A window with some of its questions, as one row of a batch.

    Args:
        counts: whether its events are asked for the next action: once, however often the window comes.
    """

    window: int
    questions: tuple[int, ...]
    counts: bool


@dataclass(frozen=True)
class Waste:
    """Tokens of batches, and how many of them are padding."""

    tokens: int
    padding: int

    @property
    def share(self) -> float:
        """Padding among all."""
        return self.padding / max(self.tokens, 1)


def size_of(part: Part, windows: Sequence[Window], per_question: int) -> tuple[int, int]:
    """Events, and candidates at most."""
    return len(windows[part.window].tokens), per_question * len(part.questions)


def parts_of(windows: Sequence[Window], until_s: float, most: int) -> list[Part]:
    """Rows in order of time: a window with more than `most` questions comes several times.

    Args:
        until_s: questions at or after it are left out.
    """
    parts = []
    for number, window in enumerate(windows):
        asked = [place for place, question in enumerate(window.questions) if question.now_s < until_s]
        starts = range(0, max(len(asked), 1), most)
        parts += [Part(number, tuple(asked[start : start + most]), start == 0) for start in starts]
    return [part for part in parts if part.questions or (part.counts and windows[part.window].next_action.any())]


def plan_batches(
    windows: Sequence[Window], parts: Sequence[Part], settings: TrainSecond, epoch: int
) -> tuple[list[list[Part]], Waste]:
    """Batches of at most `batch_tokens` tokens with padding (or of one row); parts of like length together."""
    random = np.random.default_rng((settings.seed, epoch))
    per_question = settings.negatives + 1
    batches: list[list[Part]] = []
    tokens = real = 0
    for start in range(0, len(parts), BLOCK):
        block = sorted(parts[start : start + BLOCK], key=lambda part: size_of(part, windows, per_question))
        packed = _pack(block, windows, per_question, settings.batch_tokens)
        packed = [packed[place] for place in random.permutation(len(packed)).tolist()]
        for batch in packed:
            sizes = np.array([size_of(part, windows, per_question) for part in batch])
            tokens += int(sizes.max(axis=0).sum()) * len(batch)
            real += int(sizes.sum())
        batches += packed
    return batches, Waste(tokens, tokens - real)


def _pack(block: Sequence[Part], windows: Sequence[Window], per_question: int, limit: int) -> list[list[Part]]:
    batches: list[list[Part]] = []
    events = candidates = 0
    for part in block:
        length, width = size_of(part, windows, per_question)
        wider = max(events, length), max(candidates, width)
        if not batches or sum(wider) * (len(batches[-1]) + 1) > limit:
            batches.append([])
            wider = length, width
        batches[-1].append(part)
        events, candidates = wider
    return batches


def choose_candidates(question: Question, form: Form, negatives: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Rows to learn from: what was useful, then half of the others by the light stage's score and half by chance."""
    size = len(question.gains)
    useful = np.flatnonzero(question.gains > 0.0)
    if size <= negatives + len(useful):
        return np.arange(size)
    others = np.flatnonzero(question.gains <= 0.0)
    half = negatives // 2
    order = others[np.argsort(-form.candidates.light[others], kind="stable")]
    chance = random.choice(order[half:], negatives - half, replace=False)
    return np.sort(np.concatenate([useful, order[:half], chance]))


def corrupt_events(tokens: EventTokens, settings: TrainSecond, random: np.random.Generator) -> EventTokens:
    """Some values made unknown, so that the unknown is trained, and some events made empty."""
    found = tokens.copy()
    for name in ("action", "kind", "surface", "target", "terms"):
        values = found[name]
        values[(random.random(values.shape) < settings.unknown) & (values != NOTHING)] = UNKNOWN
    empty = random.random(len(found)) < settings.token_dropout
    for name in ("action", "surface", "target", "terms"):
        found[name][empty] = NOTHING
    return found


def corrupt_form(form: Form, rows: NDArray[np.int64], settings: TrainSecond, random: np.random.Generator) -> Form:
    """Chosen candidates, with the same share of unknown values."""
    candidates, request = form.candidates.rows(rows), form.request
    actions, terms = candidates.actions.copy(), request.terms.copy()
    actions[random.random(len(actions)) < settings.unknown] = UNKNOWN
    terms[(random.random(len(terms)) < settings.unknown) & (terms != NOTHING)] = UNKNOWN
    if random.random() < settings.token_dropout:
        terms[:] = NOTHING
    return Form(replace(request, terms=terms), replace(candidates, actions=actions))
