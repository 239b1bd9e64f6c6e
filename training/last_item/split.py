"""Who is judged on what: the last item of each user is the answer, the one before stops the training early.

A user with fewer than three interactions has nothing left to learn from when two are held back, so all of his are
learned from and he is not judged. The vocabulary is what is learned from: an answer outside of it cannot be found.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from training.last_item.errors import NothingToJudge
from training.last_item.sequences import UNKNOWN, Codes, Places, Ragged, Sequences

MIN_JUDGED = 3


@dataclass(frozen=True)
class Queries:
    """Histories with what came next.

    Args:
        histories: at least one event each.
        answers: [queries], UNKNOWN where nothing was learned about the item.
        users: [queries], places in the sequences' users.
    """

    histories: Ragged
    answers: Codes
    users: Places

    def __len__(self) -> int:
        return len(self.answers)

    def rows(self, rows: Places) -> Queries:
        """Some of them."""
        lengths = self.histories.lengths[rows]
        return Queries(self.histories.take(rows, np.zeros_like(lengths), lengths), self.answers[rows], self.users[rows])

    def first(self, most: int, seed: int) -> Queries:
        """At most `most` of them, drawn evenly; all of them where there are no more."""
        if len(self) <= most:
            return self
        return self.rows(np.sort(np.random.default_rng(seed).choice(len(self), most, replace=False)))

    def known(self) -> Queries:
        """Those whose answer is in the vocabulary."""
        return self.rows(np.flatnonzero(self.answers != UNKNOWN))


@dataclass(frozen=True)
class Split:
    """What is learned from and what is judged.

    Args:
        vocabulary: names of the items learned from, in order of code; code 1 is the first.
        train: what is learned from, a row per user.
        fingerprint: of the vocabulary and of `train`.
    """

    vocabulary: tuple[str, ...]
    train: Ragged
    validation: Queries
    test: Queries
    fingerprint: str

    @property
    def train_only(self) -> int:
        """Users with too few interactions to be judged."""
        return len(self.train) - len(self.test)


def split_last(sequences: Sequences, vocabulary: tuple[str, ...] | None = None) -> Split:
    """Holds two items of each user back.

    Args:
        vocabulary: of a version that is judged; None makes one of what is learned from.

    Raises:
        NothingToJudge: no user has three interactions.
    """
    rows = sequences.rows
    lengths = rows.lengths
    judged = np.flatnonzero(lengths >= MIN_JUDGED)
    if not len(judged):
        raise NothingToJudge(_what_there_is(sequences))
    held = np.where(lengths >= MIN_JUDGED, 2, 0)
    everybody = np.arange(len(rows))
    train = rows.take(everybody, np.zeros_like(lengths), lengths - held)
    names = vocabulary if vocabulary is not None else _learned(train, sequences.items)
    coded = _coded(rows, sequences.items, names)
    train = coded.take(everybody, np.zeros_like(lengths), lengths - held)
    return Split(
        names,
        train,
        _queries(coded, judged, 2),
        _queries(coded, judged, 1),
        _fingerprint(names, train, sequences.users),
    )


def _learned(train: Ragged, items: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(items[code] for code in np.unique(train.codes))


def _coded(rows: Ragged, items: tuple[str, ...], vocabulary: tuple[str, ...]) -> Ragged:
    place = {name: code for code, name in enumerate(vocabulary, 1)}
    codes = np.array([place.get(item, UNKNOWN) for item in items], np.int32)
    return Ragged(rows.starts, codes[rows.codes], rows.times_s)


def _queries(rows: Ragged, judged: Places, from_end: int) -> Queries:
    """Each judged user's item that many from the end, with all that came before it."""
    stop = rows.lengths[judged] - from_end
    histories = rows.take(judged, np.zeros_like(stop), stop)
    return Queries(histories, rows.codes[rows.starts[judged] + stop], judged)


def _fingerprint(vocabulary: tuple[str, ...], train: Ragged, users: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for names in (vocabulary, users):
        digest.update(b"".join(len(name.encode()).to_bytes(4, "little") + name.encode() for name in names))
    for array in (train.starts, train.codes):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _what_there_is(sequences: Sequences) -> str:
    users, events = len(sequences.users), len(sequences.rows.codes)
    longest = int(sequences.rows.lengths.max(initial=0))
    return (
        f"no user has {MIN_JUDGED} interactions with an action: "
        f"{users} users have {events} in all, the longest history {longest}"
    )
