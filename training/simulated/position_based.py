"""Lists under an exact position-based model: merit, what is shown where, and what is useful then, all known.

Candidates have features; their relevance γ is a smooth function of them. A logging policy that is right about a
part of it shows all candidates of a list in the order of its noisy score; a share of lists is shuffled. An
item is useful with probability θ(position)·γ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PositionWorld:
    """What the lists are drawn from.

    Args:
        slates: number of lists of `size` candidates.
        theta: how often a position is looked at: 1/position^`decay`.
        shuffled: share of lists in random order.
        noise, wrong: of the logging policy's score, against γ's spread: chance, and a feature that means nothing.
    """

    slates: int = 20_000
    size: int = 10
    features: int = 8
    decay: float = 1.0
    shuffled: float = 0.05
    noise: float = 0.5
    wrong: float = 1.5

    @property
    def theta(self) -> Floats:
        """[size]."""
        theta: Floats = 1.0 / np.arange(1.0, self.size + 1.0) ** self.decay
        return theta


@dataclass(frozen=True)
class PositionLog:
    """Lists as logged, and the truth behind them; all [slates, size], candidates in the order shown.

    Args:
        features: [slates, size, features].
        relevance: γ.
        useful: what the log says, 0 or 1.
        shuffled: [slates], whether the list was in random order.
    """

    features: Floats
    relevance: Floats
    useful: NDArray[np.int64]
    shuffled: NDArray[np.bool_]

    @property
    def positions(self) -> NDArray[np.int64]:
        """From 1 on."""
        return np.broadcast_to(np.arange(1, self.useful.shape[1] + 1), self.useful.shape)


def draw_lists(rng: np.random.Generator, world: PositionWorld) -> PositionLog:
    """A log of a world."""
    shape = (world.slates, world.size)
    features = rng.normal(size=(*shape, world.features))
    relevance = _relevance(features)
    spread = float(relevance.std())
    score = relevance + rng.normal(0.0, world.noise * spread, shape) + world.wrong * spread * features[..., 0]
    shuffled = rng.random(world.slates) < world.shuffled
    score[shuffled] = rng.random((int(shuffled.sum()), world.size))
    order = np.argsort(-score, axis=1)
    features = np.take_along_axis(features, order[..., None], axis=1)
    relevance = np.take_along_axis(relevance, order, axis=1)
    useful = (rng.random(shape) < world.theta * relevance).astype(np.int64)
    return PositionLog(features, relevance, useful, shuffled)


def _relevance(features: Floats) -> Floats:
    """A few strong features, one that bends and one pair that works together; γ about .25 on average."""
    logits = (
        -1.6
        + 1.1 * features[..., 1]
        + 0.8 * np.abs(features[..., 2])
        + 0.7 * features[..., 3] * features[..., 4]
        - 0.5 * features[..., 5]
    )
    relevance: Floats = 1.0 / (1.0 + np.exp(-logits))
    return relevance
