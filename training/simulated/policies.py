"""Logging policies: what a simulated service offers, and with which propensities."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from features.events import Event, FeedbackEvent, RankingEvent
from training.simulated.scenes import Scene

Floats = NDArray[np.float64]


class LoggingPolicy(Protocol):
    """Scores candidates, and learns from the log as it is written."""

    name: str

    def scores(self, scene: Scene) -> Floats:
        """One finite score per candidate of the scene, in order; higher is offered sooner."""
        ...

    def observe(self, event: Event) -> None:
        """Sees every event of the log, in order."""
        ...


@dataclass(frozen=True)
class Exploration:
    """A share of rankings is drawn by Plackett–Luce over score/temperature, the rest is greedy."""

    share: float = 0.3
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0 or not self.temperature > 0.0:
            raise ValueError(f"share {self.share} must be in [0, 1], and temperature {self.temperature} above 0")


@dataclass(frozen=True)
class Slate:
    """The first k of a drawn order.

    Args:
        order: places of candidates, best first.
        propensities: per slot, P(prefix to it) / P(prefix above it) under the mixture of both branches.
        explored: whether the order was drawn by Plackett–Luce.
    """

    order: NDArray[np.int64]
    propensities: Floats
    explored: bool


class Popularity:
    """Log of the smoothed share of offers that were completed, by action."""

    name = "popularity"

    def __init__(self) -> None:
        self._offered: Counter[str] = Counter()
        self._completed: Counter[str] = Counter()

    def scores(self, scene: Scene) -> Floats:
        """Log rates [candidates], a prior of 1 in 10 counting for 10 offers."""
        rates = [
            (self._completed[candidate.action] + 1.0) / (self._offered[candidate.action] + 10.0)
            for candidate in scene.candidates
        ]
        return np.log(rates)

    def observe(self, event: Event) -> None:
        """Counts offers and completions."""
        if isinstance(event, RankingEvent):
            self._offered.update(item.action for item in event.items)
        elif isinstance(event, FeedbackEvent) and event.type == "complete":
            self._completed[event.action] += 1


class Shuffled:
    """Knows nothing: with an exploration share of 1, every order is as likely."""

    name = "shuffled"

    def scores(self, scene: Scene) -> Floats:
        """Zeros [candidates]."""
        return np.zeros(len(scene.candidates))

    def observe(self, event: Event) -> None:
        """Ignores the log."""


class Oracle:
    """Knows the truth; no model can do better."""

    name = "oracle"

    def scores(self, scene: Scene) -> Floats:
        """The scene's truth [candidates]."""
        return scene.truth

    def observe(self, event: Event) -> None:
        """Ignores the log."""


def draw_slate(rng: np.random.Generator, scores: Floats, exploration: Exploration, k: int) -> Slate:
    """Draws the first k places of an order.

    Args:
        scores: [candidates]; equal ones keep their order in the greedy branch.
    """
    greedy = np.argsort(-scores, kind="stable")
    explored = bool(rng.random() < exploration.share)
    # scores/temperature plus Gumbel noise, sorted, is a draw from Plackett–Luce
    noisy = scores / exploration.temperature + rng.gumbel(size=len(scores))
    order = np.argsort(-noisy)[:k] if explored else greedy[:k]
    return Slate(order, slot_propensities(scores, order, greedy, exploration), explored)


def slot_propensities(
    scores: Floats, order: NDArray[np.int64], greedy: NDArray[np.int64], exploration: Exploration
) -> Floats:
    """P(prefix to a slot) / P(prefix above it), P(prefix) = ε·Π PL + (1−ε)·1[greedy prefix].

    Args:
        scores: [candidates].
        order: [slots], places of the offered.
        greedy: [candidates], the greedy order.
    """
    weights = np.exp((scores - scores.max(initial=0.0)) / exploration.temperature) if len(scores) else scores
    offered = weights[order]
    # what is left to draw from, summed from the end, so that rounding never makes it less than the draw
    left = np.delete(weights, order).sum() + np.cumsum(offered[::-1])[::-1]
    drawn = np.cumprod(offered / left)
    is_greedy = np.logical_and.accumulate(order == greedy[: len(order)])
    prefix = exploration.share * drawn + (1.0 - exploration.share) * is_greedy
    above = np.concatenate([[1.0], prefix])[: len(order)]
    propensities: Floats = prefix / above
    return propensities
