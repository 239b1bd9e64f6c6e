"""Batches of histories of about equal length, so that next to nothing of a batch is padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from training.last_item.sequences import UNKNOWN, Codes, Places, Ragged

MIN_WINDOW = 2
"""Events without which nothing follows anything."""

_JITTER = 0.1


@dataclass(frozen=True)
class Packed:
    """Windows padded at their ends to the longest of the batch.

    Args:
        codes: [windows, length], UNKNOWN where padded.
        times_s: [windows, length], 0 where padded.
        lengths: [windows], at least one.
    """

    codes: Codes
    times_s: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    lengths: Places


def windows(train: Ragged, longest: int, rng: np.random.Generator) -> Ragged:
    """Every event of every row in a window of at most `longest` + 1 events, cut at places drawn anew each time.

    The last event of a window is the first of the next, so that every event but a row's first is once to be foretold.
    """
    rows, firsts, stops = [], [], []
    for row, length in enumerate(train.lengths.tolist()):
        if length < MIN_WINDOW:
            continue
        cut = length if length <= longest + 1 else int(rng.integers(MIN_WINDOW, longest + 2))
        start = 0
        while True:
            rows.append(row)
            firsts.append(start)
            stops.append(cut)
            if cut >= length:
                break
            start, cut = cut - 1, min(cut + longest, length)
    return train.take(np.array(rows, np.int64), np.array(firsts, np.int64), np.array(stops, np.int64))


def batches(histories: Ragged, most_events: int, rng: np.random.Generator | None = None) -> list[Places]:
    """Rows by batch: neighbours in length together, padded events at most `most_events` a batch.

    Args:
        rng: shuffles rows of about equal length and the batches; None goes by length.
    """
    lengths = histories.lengths
    keys = lengths if rng is None else lengths * (1.0 + _JITTER * rng.random(len(lengths)))
    order = np.argsort(keys, kind="stable")
    found = list(_cut(order, lengths, most_events))
    if rng is not None:
        rng.shuffle(found)
    return found


def pack(histories: Ragged, rows: Places) -> Packed:
    """The rows as one padded batch."""
    lengths = histories.lengths[rows]
    taken = histories.take(rows, np.zeros_like(lengths), lengths)
    inside = np.arange(int(lengths.max())) < lengths[:, None]
    codes = np.full(inside.shape, UNKNOWN, np.int32)
    times_s = np.zeros(inside.shape)
    codes[inside], times_s[inside] = taken.codes, taken.times_s
    return Packed(codes, times_s, lengths)


def last_events(histories: Ragged, most: int) -> Ragged:
    """The end of each history."""
    lengths = histories.lengths
    return histories.take(np.arange(len(histories)), np.maximum(lengths - most, 0), lengths)


def _cut(order: Places, lengths: Places, most_events: int) -> Iterator[Places]:
    start, longest = 0, 0
    for place, row in enumerate(order.tolist()):
        longest = max(longest, int(lengths[row]))
        if place > start and longest * (place + 1 - start) > most_events:
            yield order[start:place]
            start, longest = place, int(lengths[row])
    if start < len(order):
        yield order[start:]
