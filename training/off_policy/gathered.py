"""What is gathered of each offer, and how the offers of a log become arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from training.off_policy.errors import OffPolicyError
from training.off_policy.slates import Floats, Slates

Narrow = NDArray[np.float32]

MAX_CELLS = 100_000_000
"""Slates × slots × the largest pool: more would not fit into memory."""


@dataclass(frozen=True)
class Row:
    """One offer with all that was asked about it.

    Args:
        propensities, target: [slots], P(what was shown | the list above it) of the log and of the target.
        alone, target_alone: [slots], the same whatever is above; None where it is not known.
        given, given_alone: the target's for all that could have been shown [slots, pool].
        shown: [slots], rows of the pool.
        rewards: by name, [slots].
        actions: [pool].
        scores: [pool, kinds], the log's and where there is one the target's.
        context: words of the context, for the reward model.
        slices: names of the slices that it belongs to.
    """

    user: str
    position: int
    propensities: Floats
    target: Floats
    alone: Floats | None
    target_alone: Floats | None
    given: Narrow
    given_alone: Narrow | None
    shown: tuple[int, ...]
    rewards: Mapping[str, Floats]
    actions: tuple[str, ...]
    scores: Narrow
    context: tuple[str, ...]
    slices: tuple[str, ...]


@dataclass(frozen=True)
class Pools:
    """What could have been shown beside what was, padded to the largest pool.

    Args:
        given, alone: [slates, slots, pool] of the target; `alone` None where it is not known.
        shown: [slates, slots], rows of the pool.
        actions: [slates, pool], codes of `names`, -1 beyond the pool.
        scores: [slates, pool, kinds], the log's and where there is one the target's.
        positions: [slates], of the first slot, from 1.
        context: [slates, words], codes of the context's words, -1 where there are fewer.
    """

    given: NDArray[np.float32]
    alone: NDArray[np.float32] | None
    shown: NDArray[np.int64]
    actions: NDArray[np.int32]
    scores: NDArray[np.float32]
    positions: NDArray[np.int32]
    context: NDArray[np.int32]
    names: tuple[str, ...]
    words: tuple[str, ...]


@dataclass
class Gathered:
    """A log as estimators see it.

    Args:
        slices: by name, the rows that belong to it.
        rejected: rankings of counted traffic that cannot serve, by reason.
        excluded: rankings of other traffic, by its type.
        used: rankings that serve, by traffic type.
        notes: other things worth knowing, by name.
    """

    slates: Slates
    pools: Pools
    slices: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)
    notes: dict[str, int] = field(default_factory=dict)


def stack(rows: Sequence[Row]) -> tuple[Slates, Pools]:
    """Arrays of all rows.

    Raises:
        OffPolicyError: there are none, or they are too many for memory.
    """
    if not rows:
        raise OffPolicyError("no ranking is left to judge by")
    slots, width = max(len(row.shown) for row in rows), max(len(row.actions) for row in rows)
    if len(rows) * slots * width > MAX_CELLS:
        size = f"{len(rows)} rankings of up to {slots} slots and {width} candidates"
        raise OffPolicyError(f"{size} are too many to hold: --since takes fewer")
    return _slates(rows, slots), _pools(rows, slots, width)


def slices_of(rows: Sequence[Row]) -> dict[str, NDArray[np.int64]]:
    """Row numbers by slice."""
    found: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        for name in row.slices:
            found.setdefault(name, []).append(number)
    return {name: np.array(numbers, np.int64) for name, numbers in found.items()}


def _slates(rows: Sequence[Row], slots: int) -> Slates:
    _, users = np.unique(np.array([row.user for row in rows], dtype=object).astype(str), return_inverse=True)
    known = all(row.alone is not None and row.target_alone is not None for row in rows)
    alone = [row.target_alone for row in rows if row.target_alone is not None]
    return Slates(
        users=users.astype(np.int64),
        logged=_padded([row.propensities for row in rows], slots, 1.0),
        target=_padded([row.target for row in rows], slots, 1.0),
        shown=np.arange(slots) < np.array([len(row.shown) for row in rows])[:, None],
        rewards={name: _padded([row.rewards[name] for row in rows], slots, 0.0) for name in rows[0].rewards},
        logged_alone=_padded([row.alone for row in rows if row.alone is not None], slots, 1.0) if known else None,
        target_alone=_padded(alone, slots, 1.0) if known else None,
    )


def _padded(values: Sequence[Floats], slots: int, fill: float) -> Floats:
    padded = np.full((len(values), slots), fill)
    for row, each in enumerate(values):
        padded[row, : len(each)] = each
    return padded


def _pools(rows: Sequence[Row], slots: int, width: int) -> Pools:
    names = {name: code for code, name in enumerate(sorted({name for row in rows for name in row.actions}))}
    words = {word: code for code, word in enumerate(sorted({word for row in rows for word in row.context}))}
    size, kinds = len(rows), rows[0].scores.shape[1]
    known = all(row.given_alone is not None for row in rows)
    given = np.zeros((size, slots, width), np.float32)
    alone = np.zeros((size, slots, width), np.float32) if known else None
    shown = np.zeros((size, slots), np.int64)
    actions = np.full((size, width), -1, np.int32)
    scores = np.zeros((size, width, kinds), np.float32)
    context = np.full((size, max((len(row.context) for row in rows), default=0)), -1, np.int32)
    for number, row in enumerate(rows):
        filled, wide = len(row.shown), len(row.actions)
        given[number, :filled, :wide] = row.given
        if alone is not None and row.given_alone is not None:
            alone[number, :filled, :wide] = row.given_alone
        shown[number, :filled] = row.shown
        actions[number, :wide] = [names[name] for name in row.actions]
        scores[number, :wide] = row.scores
        context[number, : len(row.context)] = [words[word] for word in row.context]
    positions = np.array([row.position for row in rows], np.int32)
    return Pools(given, alone, shown, actions, scores, positions, context, tuple(names), tuple(words))
