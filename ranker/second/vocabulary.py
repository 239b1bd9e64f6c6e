"""Which actions, kinds, surfaces, target types and words a model knows, by number.

Number 0 is nothing at all, 1 what is unknown (a trained token like any other); the known follow in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ranker.second.happenings import FEEDBACK_KINDS, Happening, terms_of

NOTHING, UNKNOWN, FIRST = 0, 1, 2

T = TypeVar("T", bound=Hashable)


class Numbers(Generic[T]):
    """Numbers of values.

    Args:
        known: distinct values; the first has number FIRST.
    """

    def __init__(self, known: Iterable[T]) -> None:
        self.known = tuple(known)
        self._numbers = {value: number for number, value in enumerate(self.known, FIRST)}

    def __len__(self) -> int:
        """Rows that a table of embeddings needs."""
        return len(self.known) + FIRST

    def of(self, value: T | None) -> int:
        """The number of a value: NOTHING for None, UNKNOWN for what is not known."""
        return NOTHING if value is None else self._numbers.get(value, UNKNOWN)

    def all(self, values: Sequence[T | None]) -> NDArray[np.int32]:
        """The numbers of many values."""
        return np.fromiter(map(self.of, values), np.int32, len(values))


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The values of all vocabularies, as a version keeps them.

    Args:
        words: CRC-32 of words and fields.
    """

    actions: list[str] = []
    kinds: list[str] = []
    surfaces: list[str] = []
    targets: list[str] = []
    words: list[int] = []

    @property
    def counts(self) -> dict[str, int]:
        """How many there are of each."""
        return {name: len(getattr(self, name)) for name in self.__struct_fields__}


class Vocabulary:
    """The numbers of everything a token is made of."""

    def __init__(self, known: Known) -> None:
        self.values = known
        self.actions = Numbers(known.actions)
        self.kinds = Numbers(known.kinds)
        self.surfaces = Numbers(known.surfaces)
        self.targets = Numbers(known.targets)

    @cached_property
    def _words(self) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Known words in order, and their numbers."""
        words = np.array(self.values.words, np.uint32)
        order = np.argsort(words, kind="stable")
        return words[order], (order + FIRST).astype(np.int32)

    def words(self, hashes: NDArray[np.uint32], limit: int) -> NDArray[np.int32]:
        """Numbers [limit] of hashed terms, NOTHING after the last of them."""
        found = np.zeros(limit, np.int32)
        hashes = hashes[:limit]
        ordered, numbers = self._words
        if not len(hashes) or not len(ordered):
            found[: len(hashes)] = UNKNOWN
            return found
        at = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
        found[: len(hashes)] = np.where(ordered[at] == hashes, numbers[at], UNKNOWN)
        return found

    @property
    def rows(self) -> dict[str, int]:
        """Rows that each table of embeddings needs."""
        return {name: count + FIRST for name, count in self.values.counts.items()}


def learn_vocabulary(
    happenings: Iterable[Happening],
    actions: Iterable[str],
    min_count: int,
    max_actions: int,
    max_words: int,
    contexts: Iterable[tuple[str | None, str | None, NDArray[np.uint32]]] = (),
) -> Known:
    """What happened often enough to be known.

    Args:
        actions: of the catalogue, known however rare as long as there is room.
        contexts: (surface, trigger's kind, terms) of requests.
    """
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("actions", "kinds", "surfaces", "targets")}
    words: Counter[int] = Counter()
    for happening in happenings:
        for name, value in (
            ("actions", happening.action), ("kinds", happening.kind),
            ("surfaces", happening.surface), ("targets", happening.target),
        ):  # fmt: skip
            if value is not None:
                counts[name][value] += 1
        words.update(terms_of(happening).tolist())
    for surface, kind, terms in contexts:
        if surface is not None:
            counts["surfaces"][surface] += 1
        if kind is not None:
            counts["kinds"][kind] += 1
        words.update(terms.tolist())
    listed = {action: counts["actions"].get(action, 0) for action in actions}
    often = {action: count for action, count in counts["actions"].items() if count >= min_count}
    ranked = sorted({**listed, **often}.items(), key=lambda item: (-item[1], item[0]))
    kinds = [kind for kind in _often(counts["kinds"], min_count) if kind not in FEEDBACK_KINDS]
    return Known(
        actions=sorted(action for action, _ in ranked[:max_actions]),
        kinds=[*sorted(FEEDBACK_KINDS), *kinds],
        surfaces=_often(counts["surfaces"], min_count),
        targets=_often(counts["targets"], min_count),
        words=sorted(word for word, count in words.most_common(max_words) if count >= min_count),
    )


def _often(counts: Counter[str], min_count: int) -> list[str]:
    return sorted(value for value, count in counts.most_common(4096) if count >= min_count)
