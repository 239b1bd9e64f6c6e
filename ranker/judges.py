"""Judges: what says of every candidate whether it may be offered, and why not.

The same judge speaks before the draw (so that whatever reaches it may be shown) and again after it (so
that what changed meanwhile is deleted). A verdict never depends on the draw: that keeps propensities exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ranker.clock import Clock
from ranker.degraded import Degraded
from ranker.types import Ranking

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Verdicts:
    """Which candidates may be offered, and why the others may not.

    Args:
        keep: [candidates].
        reasons: [candidates]; empty where kept.
        degraded: what could not be judged as it should.
    """

    keep: Mask
    reasons: list[str]
    degraded: tuple[Degraded, ...] = ()


class Judge(Protocol):
    """Judges all candidates of a ranking at once, with state read now."""

    @property
    def name(self) -> str:
        """The stage its drops are reported under."""
        ...

    def judge(self, ranking: Ranking) -> Verdicts:
        """A verdict per candidate, in order; raising means that none may be offered."""
        ...


class Refusals:
    """Why each of `size` candidates is refused; the first reason given stays."""

    def __init__(self, size: int) -> None:
        self._codes = np.zeros(size, np.int16)
        self._names = [""]

    def add(self, refused: Mask, reason: str) -> None:
        """Refuses the candidates where the mask is true, unless they are refused already."""
        if refused.any():
            self._names.append(reason)
            self._codes[refused & (self._codes == 0)] = len(self._names) - 1

    @property
    def kept(self) -> Mask:
        """Those not refused so far."""
        return np.asarray(self._codes == 0, np.bool_)

    def verdicts(self, *degraded: Degraded) -> Verdicts:
        """What came out."""
        if len(self._names) == 1:
            return Verdicts(np.ones(len(self._codes), np.bool_), [""] * len(self._codes), degraded)
        return Verdicts(self.kept, [self._names[code] for code in self._codes.tolist()], degraded)


def apply_before_draw(judge: Judge, ranking: Ranking) -> Ranking:
    """The ranking without what a judge refuses; rows are renumbered."""
    verdicts = judge.judge(ranking)
    return ranking.keep(verdicts.keep, judge.name, verdicts.reasons).because(*verdicts.degraded)


def apply_after_draw(judge: Judge, ranking: Ranking) -> Ranking:
    """The ranking with what a judge refuses deleted from its order."""
    verdicts = judge.judge(ranking)
    return ranking.strike(verdicts.keep, judge.name, verdicts.reasons).because(*verdicts.degraded)


def instant_s(ranking: Ranking, clock: Clock) -> float:
    """The time to judge by: the clock's now, or the request's own in a replay of the past."""
    return ranking.now_s if ranking.traffic == "replay" else clock.now_s()
