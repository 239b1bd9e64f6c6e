"""A query in descending order of score, as blocks of candidates whose scores are equal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

MAX_EXPONENT = 1000.0


@dataclass(frozen=True)
class Ranked:
    """A query in descending order of score, as blocks of equal scores.

    Args:
        starts: [blocks], ranks (from 0) at which they begin.
        sizes: [blocks].
        block_of: [n], the block of each rank.
        positives: [blocks], how many positives each holds.
        gains: [blocks], their summed gains.
        own_gains: [n], gains in input order, not below 0.
    """

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    block_of: NDArray[np.int64]
    positives: NDArray[np.int64]
    gains: Floats
    own_gains: Floats

    @property
    def found(self) -> int:
        """Number of positives."""
        return int(self.positives.sum())


def rank_blocks(scores: ArrayLike, gains: ArrayLike, exponential: bool = False) -> Ranked:
    """Sorts a query [n] and finds its blocks.

    Raises:
        ValueError: shapes differ, or a value is not finite.
    """
    keys, amounts = paired(scores, gains, "gains")
    order = np.argsort(-keys, kind="stable")
    descending = keys[order]
    new = np.empty(len(order), np.bool_)
    new[:1] = True
    np.not_equal(descending[1:], descending[:-1], out=new[1:])
    block_of = np.cumsum(new) - 1
    starts = np.flatnonzero(new)
    useful = worth(amounts, exponential)
    return Ranked(
        starts=starts,
        sizes=np.bincount(block_of, minlength=len(starts)),
        block_of=block_of,
        positives=np.bincount(block_of, amounts[order] > 0.0, len(starts)).astype(np.int64),
        gains=np.bincount(block_of, useful[order], len(starts)).astype(np.float64),
        own_gains=useful,
    )


def paired(scores: ArrayLike, gains: ArrayLike, name: str) -> tuple[Floats, Floats]:
    """Both as float64 [n].

    Args:
        name: what `gains` are called in the message.

    Raises:
        ValueError: shapes differ, or a value is not finite.
    """
    left, right = np.asarray(scores, np.float64), np.asarray(gains, np.float64)
    if left.ndim != 1 or left.shape != right.shape:
        raise ValueError(f"scores have shape {left.shape} and {name} {right.shape}: one per candidate is needed")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise ValueError(f"scores or {name} hold a value that is not finite")
    return left, right


def worth(gains: Floats, exponential: bool) -> Floats:
    """Gains as DCG counts them: g or 2^g − 1, a negative one as 0.

    Raises:
        ValueError: a gain is too large for 2^g.
    """
    useful = np.maximum(gains, 0.0)
    if exponential and useful.max(initial=0.0) > MAX_EXPONENT:
        raise ValueError(f"gain {useful.max()} is above {MAX_EXPONENT:g}: 2^g of a list would overflow")
    return np.exp2(useful) - 1.0 if exponential else useful


def first_block(ranked: Ranked) -> tuple[int, int, int]:
    """Start, size and positives of the first block that holds a positive."""
    block = int(np.argmax(ranked.positives > 0))
    return int(ranked.starts[block]), int(ranked.sizes[block]), int(ranked.positives[block])
