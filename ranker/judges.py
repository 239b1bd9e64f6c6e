"""Judges: what says of every candidate whether it may be offered, and why not.

The same judge speaks before the draw (so that whatever reaches it may be shown) and again after it (so
that what changed meanwhile is deleted). A verdict never depends on the draw: that keeps propensities exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ranker.clock import Clock
from ranker.degraded import Degraded
from ranker.types import Candidates, Ranking, everyone

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


@dataclass
class LastVerdicts:
    """What a judge said last, which stands while nothing that it had read has moved.

    The stages before and after the draw ask the same judge about the same candidates, a moment apart.
    """

    _asked: tuple[object, ...] = ()
    _until_s: float = -math.inf
    _said: Verdicts | None = None

    def recall(self, candidates: Candidates, now_s: float, *read: object) -> Verdicts | None:
        """The verdicts on this very list; None when they have to be found again.

        Args:
            read: versions and flags that the judge reads.
        """
        if self._said is None or self._asked[0] is not candidates or self._asked[1:] != read or now_s >= self._until_s:
            return None
        return self._said

    def keep(self, said: Verdicts, until_s: float, candidates: Candidates, *read: object) -> Verdicts:
        """Remembers verdicts until an instant in Unix seconds; not those on what could not be judged."""
        self._asked, self._until_s = (candidates, *read), until_s
        self._said = None if said.degraded else said
        return said


class Refusals:
    """Why each of `size` candidates is refused; the first reason given stays."""

    def __init__(self, size: int) -> None:
        self._codes = np.zeros(size, np.int16)
        self._names = [""]

    def add(self, refused: Mask, reason: str) -> None:
        """Refuses the candidates where the mask is true, unless they are refused already."""
        if np.count_nonzero(refused):  # a fifth of what any() costs
            self._names.append(reason)
            self._codes[refused & (self._codes == 0)] = len(self._names) - 1

    @property
    def kept(self) -> Mask:
        """Those not refused so far."""
        return np.asarray(self._codes == 0, np.bool_)

    def verdicts(self, *degraded: Degraded) -> Verdicts:
        """What came out."""
        if len(self._names) == 1:
            return all_kept(len(self._codes), *degraded)
        return Verdicts(self.kept, [self._names[code] for code in self._codes.tolist()], degraded)


def all_kept(size: int, *degraded: Degraded) -> Verdicts:
    """Nothing is refused."""
    return Verdicts(everyone(size), [""] * size, degraded)


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


def first_after(now_s: float, *times_s: NDArray[np.float64]) -> float:
    """The first of some instants that is still to come, infinity where there is none."""
    return min((float(times[times > now_s].min(initial=math.inf)) for times in times_s), default=math.inf)
