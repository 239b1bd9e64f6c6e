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

BLOCK = 512
"""Rows that follow one another in time and may be put together by length."""


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
    """Batches of at most `batch_tokens` tokens with padding (or of one row); parts of like size together."""
    random = np.random.default_rng((settings.seed, epoch))
    batches: list[list[Part]] = []
    tokens = padding = 0
    for start in range(0, len(parts), BLOCK):
        block = parts[start : start + BLOCK]
        sizes = [size_of(part, windows, settings.negatives + 1) for part in block]
        rows, waste = least_padding(sizes, settings.batch_tokens)
        batches += [[block[row] for row in rows[place]] for place in random.permutation(len(rows)).tolist()]
        tokens, padding = tokens + waste.tokens, padding + waste.padding
    return batches, Waste(tokens, padding)


def least_padding(sizes: Sequence[tuple[int, int]], limit: int) -> tuple[list[list[int]], Waste]:
    """Rows by batch, of several ways to arrange them that with the least padding.

    A batch is padded to its longest and to its widest row. So rows are cut into strips of like length (or width), and
    within a strip they are in order of width (or length), up and down in turns; how many strips are best depends on
    what varies more.

    Args:
        sizes: (events, candidates) of each row.
        limit: most tokens of a batch, with padding; one row may have more.
    """
    batches = max(1, round(sum(map(sum, sizes)) / limit))
    counts = sorted({min(len(sizes), max(1, round(batches**0.5 * factor))) for factor in (0.0, 0.5, 1.0, 2.0, 3.0)})
    found = [_pack(_strips(sizes, first, count), sizes, limit) for count in counts for first in (0, 1)]
    wastes = [_waste(rows, sizes) for rows in found]
    best = min(range(len(found)), key=lambda place: wastes[place].padding)
    return found[best], wastes[best]


def _strips(sizes: Sequence[tuple[int, int]], first: int, count: int) -> list[int]:
    order = sorted(range(len(sizes)), key=lambda row: (sizes[row][first], sizes[row][1 - first]))
    each = -(-len(order) // count)
    strips = [order[start : start + each] for start in range(0, len(order), each)]
    turned = [
        sorted(strip, key=lambda row: sizes[row][1 - first], reverse=bool(number % 2))
        for number, strip in enumerate(strips)
    ]
    return [row for strip in turned for row in strip]


def _pack(order: Sequence[int], sizes: Sequence[tuple[int, int]], limit: int) -> list[list[int]]:
    batches: list[list[int]] = []
    events = candidates = 0
    for row in order:
        length, width = sizes[row]
        wider = max(events, length), max(candidates, width)
        if not batches or sum(wider) * (len(batches[-1]) + 1) > limit:
            batches.append([])
            wider = length, width
        batches[-1].append(row)
        events, candidates = wider
    return batches


def _waste(batches: Sequence[Sequence[int]], sizes: Sequence[tuple[int, int]]) -> Waste:
    tokens = sum(
        len(rows) * (max(sizes[row][0] for row in rows) + max(sizes[row][1] for row in rows)) for rows in batches
    )
    return Waste(tokens, tokens - sum(map(sum, sizes)))


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
